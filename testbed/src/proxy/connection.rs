//! A connection through the proxy.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{net::TcpStream, select, sync::oneshot};

use super::{
    message::{Framing, Messages, Outbox},
    resp,
    rule::Verdict,
    traffic::Traffic,
};

struct Connection {
    requests: Messages,
    to_client: Outbox,
    replies: Messages,
    to_server: Outbox,
    /// The requests that are not answered, and what was decided on them. A lost request is the
    /// last: the connection ends in place of its reply.
    unanswered: VecDeque<(Vec<u8>, Verdict)>,
    /// Nothing is read from either end any more.
    is_closing: bool,
    /// Dropped after the ends: the time of a late request begins then.
    closed: Option<oneshot::Sender<()>>,
    traffic: Arc<Traffic>,
}

/// Connects a client to the server, and carries messages until the connection ends.
pub(super) async fn carry(client: TcpStream, traffic: Arc<Traffic>) {
    // The client of a server that is down sees its connection end.
    if let Ok((replies, to_server)) = traffic.upstream().connect(traffic.framing).await {
        let (from_client, to_client) = client.into_split();
        let connection = Connection {
            requests: Messages::new(from_client, traffic.framing),
            to_client: Outbox::new(to_client),
            replies,
            to_server,
            unanswered: VecDeque::new(),
            is_closing: false,
            closed: None,
            traffic,
        };
        connection.carry().await;
    }
}

impl Connection {
    /// Carries messages in both directions until one end closes or a message is lost. The messages
    /// before that still arrive.
    async fn carry(mut self) {
        while !self.has_closed() {
            let reads = !self.is_closing;
            let is_last = self.unanswered.back().is_some_and(|(_, verdict)| is_lost(*verdict));
            select! {
                request = self.requests.next(), if reads && !is_last => match request {
                    Some(request) => self.take_request(request).await,
                    None => self.is_closing = true,
                },
                reply = self.replies.next(), if reads => match reply {
                    Some(reply) => self.take_reply(reply),
                    // A server that has ended takes no requests: the client learns it at once.
                    None => return drop(self.to_client.flush().await),
                },
                sent = self.to_server.send() => if sent.is_err() {
                    return drop(self.to_client.flush().await);
                },
                sent = self.to_client.send() => if sent.is_err() {
                    return drop(self.to_server.flush().await);
                },
            }
        }
    }

    fn has_closed(&self) -> bool {
        let is_over = self.unanswered.front().is_some_and(|(_, verdict)| is_lost(*verdict));
        (self.is_closing || is_over) && self.to_client.is_empty() && self.to_server.is_empty()
    }

    async fn take_request(&mut self, request: Vec<u8>) {
        let (rule, verdict) = self.traffic.on_request(&request);
        match verdict {
            Verdict::Pass | Verdict::DelayReply(_) | Verdict::DropReply => {
                self.forward(request, Duration::ZERO, verdict);
            }
            Verdict::Delay(by) => self.forward(request, by, verdict),
            Verdict::Drop => self.lose(verdict),
            Verdict::Late(after) => {
                let (closed, has_closed) = oneshot::channel();
                self.closed = Some(closed);
                let has_closed = async { drop(has_closed.await) };
                self.traffic.execute_later(request, has_closed, after);
                self.lose(verdict);
            }
            Verdict::Duplicate => {
                assert_eq!(self.traffic.framing, Framing::Resp, "the second reply must be known");
                self.forward(request.clone(), Duration::ZERO, Verdict::Pass);
                self.forward(request, Duration::ZERO, verdict);
            }
            Verdict::Repeat(after) => {
                self.traffic.execute_later(request.clone(), async {}, after);
                self.forward(request, Duration::ZERO, verdict);
            }
            Verdict::Hold => match self.traffic.hold(rule, request.clone()).await {
                Ok(()) => self.forward(request, Duration::ZERO, verdict),
                Err(_) => self.lose(Verdict::Drop),
            },
        }
    }

    fn forward(&mut self, request: Vec<u8>, delay: Duration, verdict: Verdict) {
        match (self.traffic.framing, self.unanswered.back_mut()) {
            // What the server sends first answers all of them.
            (Framing::Chunks, Some(unanswered)) => {
                unanswered.0.extend(&request);
                if verdict != Verdict::Pass {
                    unanswered.1 = verdict;
                }
            }
            // The reply to a subscription is a push.
            (Framing::Resp, _) if resp::command(&request).ends_with("SUBSCRIBE") => {}
            _ => self.unanswered.push_back((request.clone(), verdict)),
        }
        self.to_server.push(request, delay);
    }

    /// Closes the connection: once the earlier requests are answered, if their replies are known.
    fn lose(&mut self, verdict: Verdict) {
        match self.traffic.framing {
            Framing::Chunks => self.is_closing = true,
            Framing::Resp => self.unanswered.push_back((Vec::new(), verdict)),
        }
    }

    fn take_reply(&mut self, reply: Vec<u8>) {
        let is_push = self.traffic.framing == Framing::Resp && resp::is_push(&reply);
        let answered = if is_push { None } else { self.unanswered.pop_front() };
        let (request, verdict) = answered.unwrap_or((Vec::new(), Verdict::Pass));
        let delay = match verdict {
            Verdict::DropReply | Verdict::Drop | Verdict::Late(_) => {
                return self.is_closing = true;
            }
            // The client has the first of the two replies.
            Verdict::Duplicate => return,
            Verdict::DelayReply(by) => by,
            _ => Duration::ZERO,
        };
        match self.traffic.on_reply(&request, &reply) {
            Verdict::Pass => self.to_client.push(reply, delay),
            Verdict::Delay(by) => self.to_client.push(reply, delay + by),
            Verdict::Drop => self.is_closing = true,
            verdict => panic!("{verdict:?} is a verdict on requests"),
        }
    }
}

fn is_lost(request: Verdict) -> bool {
    matches!(request, Verdict::Drop | Verdict::Late(_))
}
