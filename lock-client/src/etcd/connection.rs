//! Requests to the members of etcd.

use std::{mem, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

use super::{
    failure::Failure,
    http::{Http, Line, Message, whole},
    keys::Keys,
    messages::{Authenticated, Txn, TxnReply},
    server::{Member, Server},
    view::{Part, View},
};
use crate::backend::BackendError;

/// How long an answer may take at least until the reserved connection is given up, though its caller
/// has given up.
const LONGEST_ANSWER: Duration = Duration::from_secs(5);

/// The connections of a client. Requests go to one member, until it fails.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    pub(super) answer_timeout: Duration,
    /// Whether the requests are those of held locks, which go before tries.
    is_held: bool,
}

struct Shared {
    server: Server,
    http: Http,
    /// The number of the member that requests go to.
    current: watch::Sender<usize>,
    /// The token of the user's login.
    login: Mutex<Option<String>>,
}

impl Connection {
    pub(super) fn new(server: Server, answer_timeout: Duration) -> Self {
        let (http, current) = (Http::new(&server), watch::Sender::new(0));
        let shared = Shared { server, http, current, login: Mutex::default() };
        Self { shared: Arc::new(shared), answer_timeout, is_held: false }
    }

    pub(super) fn answer_within(self, answer_timeout: Duration) -> Self {
        Self { answer_timeout, ..self }
    }

    /// The same connections, for the requests of held locks.
    pub(super) fn for_held(&self) -> Self {
        Self { is_held: true, ..self.clone() }
    }

    pub(super) fn server(&self) -> &Server {
        &self.shared.server
    }

    /// Makes the reserved connection, if there is none.
    pub(super) async fn reserve(&self) -> Result<(), Failure> {
        let number = *self.shared.current.borrow();
        let member = &self.shared.server.members[number];
        let reserving = timeout(self.answer_timeout, self.shared.http.reserve(member));
        let reserved = reserving.await.unwrap_or_else(|_| Err(self.silent(member)));
        reserved.inspect_err(|_| self.fail_over_from(number))
    }

    pub(super) fn http(&self) -> &Http {
        &self.shared.http
    }

    /// Sends one request, and returns the answer.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        self.call_over(self.line().await?, method, request).await
    }

    async fn call_over<T: DeserializeOwned>(
        &self,
        line: Line,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        let send = |line, member, message| self.exchange(line, member, message);
        self.ask(line, method, request, send).await
    }

    /// Carries out a transaction.
    pub(super) async fn transact(&self, transaction: &Txn) -> Result<TxnReply, Failure> {
        self.transact_over(self.line().await?, transaction).await
    }

    pub(super) async fn transact_over(
        &self,
        line: Line,
        transaction: &Txn,
    ) -> Result<TxnReply, Failure> {
        self.call_over(line, "kv/txn", transaction).await
    }

    /// Reads a lock.
    pub(super) async fn view(&self, keys: &Keys, part: Part) -> Result<View, BackendError> {
        let success = View::reads(keys, part).to_vec();
        View::parse(self.transact(&Txn { success, ..Txn::default() }).await?)
    }

    /// Sends one request to this member, and returns the answer.
    pub(super) async fn call_member<T: DeserializeOwned>(
        &self,
        member: &Member,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        let request = serde_json::to_vec(request).expect("a message is JSON");
        let send = |line, member, message| self.exchange(line, member, message);
        self.ask_member(&mut self.line().await?, member, method, request.into(), &send).await
    }

    /// Sends a request whose answer is a stream. It ends when etcd ends it, or when requests go to
    /// another member. Returns after the first message, which confirms the stream.
    pub(super) async fn stream(
        &self,
        method: &str,
        request: &impl Serialize,
    ) -> Result<Stream, Failure> {
        let mut current = self.shared.current.subscribe();
        current.mark_unchanged();
        let send = |line, member, message| async move { (line, self.open(member, message).await) };
        let body = self.ask(Line::default(), method, request, send).await?;
        Ok(Stream { body, current, read: Vec::new() })
    }

    /// Waits for a connection. A request that gets none was not sent, whatever the member does.
    pub(super) async fn line(&self) -> Result<Line, Failure> {
        let http = &self.shared.http;
        let line = async {
            match self.is_held {
                true => http.line_of_held().await,
                false => http.line_of_try().await,
            }
        };
        timeout(self.answer_timeout, line).await.map_err(|_| {
            let reason = format!("{}: all connections of this client are busy", self.server());
            Failure::NotSent(BackendError::Unavailable(reason.into()))
        })
    }

    /// Sends a request to one member after the other, until one has received it.
    async fn ask<T, F: Future<Output = (Line, Result<T, Failure>)>>(
        &self,
        mut line: Line,
        method: &str,
        request: &impl Serialize,
        send: impl Fn(Line, Member, Message) -> F,
    ) -> Result<T, Failure> {
        let request = Bytes::from(serde_json::to_vec(request).expect("a message is JSON"));
        let mut attempts = self.shared.server.members.len();
        loop {
            attempts -= 1;
            let number = *self.shared.current.borrow();
            let member = &self.shared.server.members[number];
            match self.ask_member(&mut line, member, method, request.clone(), &send).await {
                Err(Failure::NotSent(_)) if attempts > 0 => self.fail_over_from(number),
                Err(failure @ Failure::Other(BackendError::Unavailable(_))) => {
                    self.fail_over_from(number);
                    return Err(failure);
                }
                answer => return answer,
            }
        }
    }

    fn silent(&self, member: &Member) -> Failure {
        let reason = format!("no answer within {} ms", self.answer_timeout.as_millis());
        Failure::unavailable(member, &reason)
    }

    /// Lets requests go to the member after this one, unless they already go to another.
    fn fail_over_from(&self, number: usize) {
        let count = self.shared.server.members.len();
        self.shared.current.send_if_modified(|current| {
            let leaves = *current == number && count > 1;
            if leaves {
                *current = (number + 1) % count;
            }
            leaves
        });
    }

    /// Sends a request to a member, and limits the time for its answer. If its login is not valid
    /// any more, this logs in again.
    async fn ask_member<T, F: Future<Output = (Line, Result<T, Failure>)>>(
        &self,
        line: &mut Line,
        member: &Member,
        method: &str,
        request: Bytes,
        send: &impl Fn(Line, Member, Message) -> F,
    ) -> Result<T, Failure> {
        let asking = async {
            let token = self.log_in(line, member, None).await?;
            let sent = message(member, method, request.clone(), token.as_deref())?;
            let (back, answer) = send(mem::take(line), member.clone(), sent).await;
            *line = back;
            if token.is_none() || !matches!(answer, Err(Failure::LoggedOut(_))) {
                return answer;
            }
            let token = self.log_in(line, member, token).await?;
            let again = message(member, method, request, token.as_deref())?;
            let (back, answer) = send(mem::take(line), member.clone(), again).await;
            *line = back;
            // The password is right, so that a later login may succeed.
            answer.map_err(|failure| match failure {
                Failure::LoggedOut(reason) => {
                    Failure::Other(BackendError::Unavailable(reason.into()))
                }
                failure => failure,
            })
        };
        let answer = timeout(self.answer_timeout, asking).await;
        answer.unwrap_or_else(|_| Err(self.silent(member)))
    }

    /// Returns the token of the login, but not an expired one; `None` without a user.
    async fn log_in(
        &self,
        line: &mut Line,
        member: &Member,
        expired: Option<String>,
    ) -> Result<Option<String>, Failure> {
        let Some(user) = &self.shared.server.user else { return Ok(None) };
        // One request logs in, and the others wait for it.
        let mut login = self.shared.login.lock().await;
        if login.is_none() || *login == expired {
            let credentials = json!({ "name": user.name, "password": user.password });
            let request = serde_json::to_vec(&credentials).expect("a message is JSON");
            let message = message(member, "auth/authenticate", request.into(), None)?;
            let (status, body) = self.exchange_over(line, member, message).await?;
            let authenticated: Authenticated = serde_json::from_slice(&body)
                .map_err(|_| Failure::from_answer(member, status, &body))?;
            *login = Some(authenticated.token);
        }
        Ok(login.clone())
    }

    /// Sends a request, and parses the answer.
    async fn exchange<T: DeserializeOwned>(
        &self,
        mut line: Line,
        member: Member,
        message: Message,
    ) -> (Line, Result<T, Failure>) {
        let exchanged = self.exchange_over(&mut line, &member, message).await;
        (line, exchanged.and_then(|(status, body)| parse(&member, status, &body)))
    }

    async fn exchange_over(
        &self,
        line: &mut Line,
        member: &Member,
        message: Message,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let longest = self.answer_timeout.max(LONGEST_ANSWER);
        self.shared.http.exchange(line, member, message, self.is_held, longest).await
    }

    /// Sends a request whose answer is a stream.
    async fn open(&self, member: Member, message: Message) -> Result<Incoming, Failure> {
        let response = self.shared.http.open(&member, message).await?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let (status, body) = whole(&member, response).await?;
        Err(Failure::from_answer(&member, status, &body))
    }
}

fn parse<T: DeserializeOwned>(
    member: &Member,
    status: StatusCode,
    body: &[u8],
) -> Result<T, Failure> {
    if !status.is_success() {
        return Err(Failure::from_answer(member, status, body));
    }
    // An error within a stream has no status of its own. An answer that can't be parsed may belong
    // to a request that was carried out.
    serde_json::from_slice(body).map_err(|invalid| match serde_json::from_slice::<Value>(body) {
        Ok(value) if value.get("error").is_some() => Failure::from_answer(member, status, body),
        _ => Failure::unavailable(member, &format!("not an answer: {invalid}")),
    })
}

fn message(
    member: &Member,
    method: &str,
    request: Bytes,
    token: Option<&str>,
) -> Result<Message, Failure> {
    let mut message = Request::post(member.method(method))
        .header(CONTENT_TYPE, "application/json")
        // A member without a leader rejects requests at once, and ends its streams.
        .header("Grpc-Metadata-hasleader", "true");
    if let Some(token) = token {
        message = message.header(AUTHORIZATION, token);
    }
    message
        .body(Full::new(request))
        .map_err(|_| Failure::unavailable(member, "the token of the login is no header of HTTP"))
}

/// The messages of a stream, which are lines.
pub(super) struct Stream {
    body: Incoming,
    current: watch::Receiver<usize>,
    /// What was read, and is not a whole line yet.
    read: Vec<u8>,
}

impl Stream {
    /// Returns the next message; `None` at the end of the stream.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<_> = self.read.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            tokio::select! {
                frame = self.body.frame() => {
                    self.read.extend(frame?.ok()?.into_data().unwrap_or_default());
                }
                _ = self.current.changed() => return None,
            }
        }
    }
}
