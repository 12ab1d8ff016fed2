//! A connection to one member, which belongs to one session.

use std::{
    collections::VecDeque,
    future::pending,
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::try_join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    select,
    sync::{broadcast, mpsc, oneshot},
    task::AbortHandle,
    time::{Interval, interval, timeout},
};

use super::{
    failure::Failure,
    messages::{self, Received, Request, Results},
    server::Server,
    session::{End, Session},
    stream::{self, Reading, Writing},
};

/// How many changes a slow receiver may be behind.
const UNREAD_CHANGES: usize = 256;
/// Longer messages are not ZooKeeper's: a server limits its own to 1 MiB.
const LONGEST_MESSAGE: usize = 1 << 22;
/// How many nodes one message reads. With the longest paths, it has half of the 1 MiB that a server
/// takes.
const MOST_READS: usize = 256;

/// A connection to one member. It ends when this is dropped. Its session goes on until its time-out.
pub(super) struct Connection {
    pub(super) session: Session,
    /// The number of the member.
    pub(super) member: usize,
    server: String,
    answer_timeout: Duration,
    requests: mpsc::UnboundedSender<Unanswered>,
    changes: broadcast::WeakSender<String>,
    task: AbortHandle,
    /// Whether a request was not answered in time.
    is_silent: AtomicBool,
}

/// How a connection keeps its session alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// Only by being made, so that the session expires like a lock.
    ByConnecting,
    /// By pings, as long as the connection exists.
    ByPings,
}

/// A request, and the receiver of its answer.
struct Unanswered {
    request: Request,
    answer: oneshot::Sender<Result<Vec<u8>, Failure>>,
}

impl Connection {
    /// Connects to a member: makes a session, or goes on with one and sets its full time.
    pub(super) async fn open(
        server: &Server,
        number: usize,
        session: Option<&Session>,
        timeout_ms: i32,
        keeping: Keeping,
        answer_timeout: Duration,
    ) -> Result<Self, Failure> {
        let member = &server.members[number];
        let (reader, mut writer) = stream::open(server, member).await?;
        let lost = |error: io::Error| {
            let hint = "has the member a quorum? does this port take TLS only?";
            Failure::unavailable(&member.to_string(), &format!("{error} ({hint})"))
        };
        let mut messages = Messages { reader, read: Vec::new() };
        let mut first = messages::connect(session, timeout_ms);
        if let Some(user) = &server.user {
            first.extend(Request::log_in(user).encode(0));
        }
        send(&mut writer, &first).await.map_err(lost)?;
        let session = messages::connected(&messages.next().await.map_err(lost)?)?;
        let server = member.to_string();
        let (requests, receiver) = mpsc::unbounded_channel();
        let changes = broadcast::Sender::new(UNREAD_CHANGES);
        let weak_changes = changes.downgrade();
        let serving = Serving {
            server: server.clone(),
            writer,
            unanswered: VecDeque::new(),
            number: 0,
            changes,
            is_pinging: false,
        };
        let pings = match keeping {
            Keeping::ByConnecting => None,
            Keeping::ByPings => Some(interval(Duration::from_millis(session.timeout_ms / 6 + 1))),
        };
        let task = tokio::spawn(serving.serve(messages, receiver, pings)).abort_handle();
        let (changes, is_silent) = (weak_changes, AtomicBool::new(false));
        Ok(Self {
            session,
            member: number,
            server,
            answer_timeout,
            requests,
            changes,
            task,
            is_silent,
        })
    }

    /// Sends a request at once, behind those before it. The answer may be awaited later.
    pub(super) fn send(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send + use<'_> {
        let (answer, receiver) = oneshot::channel();
        // A connection that has ended drops the request.
        let _ = self.requests.send(Unanswered { request, answer });
        async {
            match timeout(self.answer_timeout, receiver).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(Failure::unavailable(&self.server, "the connection has ended")),
                Err(_) => {
                    self.is_silent.store(true, Ordering::Relaxed);
                    self.task.abort();
                    let millis = self.answer_timeout.as_millis();
                    let reason = format!("no answer within {millis} ms");
                    Err(Failure::unavailable(&self.server, &reason))
                }
            }
        }
    }

    /// Carries out all of these requests, or none.
    pub(super) async fn transact(&self, operations: &[Request]) -> Result<(), Failure> {
        messages::transacted(&self.server, &self.send(Request::transaction(operations)).await?)
    }

    /// Checks that a node exists, by a transaction that changes nothing. It goes through a quorum. So the
    /// leader that has set the session's full time was still the leader. A leader that is elected later
    /// gives it its full time again.
    pub(super) fn check(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<'_> {
        // It is sent at once, so that what is sent later is behind it.
        let answer = self.send(Request::transaction(&[Request::check(path)]));
        async { messages::transacted(&self.server, &answer.await?) }
    }

    /// Reads nodes, one after the other.
    pub(super) async fn read(&self, reads: &[Request]) -> Result<Results, Failure> {
        let parts = reads.chunks(MOST_READS).map(|part| self.send(Request::reads(part)));
        // All parts are sent here.
        let parts: Vec<_> = parts.collect();
        Results::new(&self.server, &try_join_all(parts).await?)
    }

    /// Ends the session, and deletes its node.
    pub(super) async fn close_session(&self) -> Result<End, Failure> {
        match self.send(Request::close_session()).await {
            Ok(_) => Ok(End::Closed),
            Err(Failure::Expired) => Ok(End::Expired),
            Err(failure) => Err(failure),
        }
    }

    /// Receives the paths of changes that watches see from now on; `None` if the connection has ended.
    pub(super) fn changes(&self) -> Option<broadcast::Receiver<String>> {
        self.changes.upgrade().map(|changes| changes.subscribe())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.requests.is_closed() || self.is_silent.load(Ordering::Relaxed)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The messages that a server sends.
struct Messages {
    reader: Reading,
    /// What was read, and is not a whole message yet.
    read: Vec<u8>,
}

impl Messages {
    /// Returns the next message. It may be cancelled.
    async fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some((length, rest)) = self.read.split_first_chunk() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > LONGEST_MESSAGE {
                    return Err(io::Error::other("this is no ZooKeeper: its message is too long"));
                }
                if rest.len() >= length {
                    let message = rest[..length].to_vec();
                    self.read.drain(..size_of::<u32>() + length);
                    return Ok(message);
                }
            }
            if self.reader.read_buf(&mut self.read).await? == 0 {
                return Err(io::Error::other("the connection was closed"));
            }
        }
    }
}

/// The task of a connection.
struct Serving {
    server: String,
    writer: Writing,
    /// Answers come in the order of the requests.
    unanswered: VecDeque<oneshot::Sender<Result<Vec<u8>, Failure>>>,
    /// The number of the last request.
    number: i32,
    changes: broadcast::Sender<String>,
    /// Whether a ping is not answered.
    is_pinging: bool,
}

impl Serving {
    /// Serves until one end closes the connection, or the server is silent. Then requests that are not
    /// answered fail, and receivers of changes end.
    async fn serve(
        mut self,
        mut messages: Messages,
        mut requests: mpsc::UnboundedReceiver<Unanswered>,
        mut pings: Option<Interval>,
    ) {
        loop {
            let goes_on = select! {
                message = messages.next() => match message {
                    Ok(message) => self.receive(&message),
                    Err(_) => return,
                },
                request = requests.recv() => match request {
                    Some(request) => self.send(request).await,
                    None => return,
                },
                () = next_ping(&mut pings) => self.ping().await,
            };
            if !goes_on {
                return;
            }
        }
    }

    async fn send(&mut self, Unanswered { request, answer }: Unanswered) -> bool {
        self.number = self.number.wrapping_add(1).max(1);
        self.unanswered.push_back(answer);
        send(&mut self.writer, &request.encode(self.number)).await.is_ok()
    }

    async fn ping(&mut self) -> bool {
        let is_silent = std::mem::replace(&mut self.is_pinging, true);
        !is_silent && send(&mut self.writer, &Request::ping().encode(0)).await.is_ok()
    }

    /// Handles a message. Returns whether the connection goes on.
    fn receive(&mut self, message: &[u8]) -> bool {
        match Received::parse(message) {
            Ok(Received::Answer(code, body)) => {
                let Some(answer) = self.unanswered.pop_front() else { return false };
                // The caller may have left.
                let _ = answer.send(Failure::check(&self.server, code).map(|()| body));
                true
            }
            Ok(Received::Changed(path)) => {
                // Without a receiver, nobody waits for changes.
                let _ = self.changes.send(path);
                true
            }
            Ok(Received::Pong) => {
                self.is_pinging = false;
                true
            }
            Ok(Received::LoggedIn(code)) => match Failure::check(&self.server, code) {
                Ok(()) => true,
                Err(_) => {
                    for answer in self.unanswered.drain(..) {
                        let _ =
                            answer.send(Failure::check(&self.server, code).map(|()| Vec::new()));
                    }
                    false
                }
            },
            Err(_) => false,
        }
    }
}

async fn send(writer: &mut Writing, message: &[u8]) -> io::Result<()> {
    writer.write_all(message).await?;
    // An encrypted message may wait for more.
    writer.flush().await
}

async fn next_ping(pings: &mut Option<Interval>) {
    match pings {
        Some(pings) => drop(pings.tick().await),
        None => pending().await,
    }
}
