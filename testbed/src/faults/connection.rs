//! A connection through the proxy.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    net::{
        TcpStream, UnixStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
        unix,
    },
    select,
};

use super::{
    Traffic,
    decisions::Fault,
    resp::{Messages, command, is_push},
    way::Way,
};

pub(super) struct Connection {
    requests: Messages<OwnedReadHalf>,
    to_server: Way<unix::OwnedWriteHalf>,
    replies: Messages<unix::OwnedReadHalf>,
    to_client: Way<OwnedWriteHalf>,
    /// What is to become of the replies that are still to come.
    awaited: VecDeque<Awaited>,
    /// Nothing is taken from either end any more.
    is_cut: bool,
    /// What the server is to execute after the connection has ended.
    late: Option<(Vec<u8>, Duration)>,
    traffic: Arc<Traffic>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// A reply that is to be passed on, after a while.
    Reply(Duration),
    /// The reply to what the client has sent only once.
    Surplus,
    /// A reply that is lost with the connection.
    LostReply,
    /// The end of the connection.
    End,
}

const PASSED: Awaited = Awaited::Reply(Duration::ZERO);

impl Connection {
    pub(super) fn new(client: TcpStream, server: UnixStream, traffic: Arc<Traffic>) -> Self {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        Self {
            requests: Messages::of(from_client),
            to_server: Way::to(to_server),
            replies: Messages::of(from_server),
            to_client: Way::to(to_client),
            awaited: VecDeque::new(),
            is_cut: false,
            late: None,
            traffic,
        }
    }

    /// Carries messages in both directions until one end closes, or something is lost; passes on what
    /// came before that, and closes both.
    pub(super) async fn carry(mut self) {
        while !self.has_ended() {
            let takes_requests = !self.is_cut && self.awaited.back() != Some(&Awaited::End);
            select! {
                request = self.requests.next(), if takes_requests => match request {
                    Some(request) => self.take_request(request),
                    None => self.is_cut = true,
                },
                reply = self.replies.next(), if !self.is_cut => match reply {
                    Some(reply) => self.take_reply(reply),
                    None => self.is_cut = true,
                },
                () = self.to_server.due() => self.to_server.send().await,
                () = self.to_client.due() => self.to_client.send().await,
            }
        }
        let (late, traffic) = (self.late.take(), self.traffic.clone());
        drop(self);
        if let Some((request, wait)) = late {
            traffic.execute_later(request, wait);
        }
    }

    fn has_ended(&self) -> bool {
        let is_over = self.is_cut || self.awaited.front() == Some(&Awaited::End);
        is_over && self.to_server.is_empty() && self.to_client.is_empty()
    }

    fn take_request(&mut self, request: Vec<u8>) {
        let (mut wait, mut awaited) = (Duration::ZERO, PASSED);
        match self.traffic.fault_of(&request) {
            None => {}
            Some(Fault::SlowRequest(long)) => wait = long,
            Some(Fault::SlowReply(long)) => awaited = Awaited::Reply(long),
            Some(Fault::LostReply) => awaited = Awaited::LostReply,
            Some(Fault::LostRequest) => return self.awaited.push_back(Awaited::End),
            Some(Fault::Late(wait)) => {
                self.late = Some((request, wait));
                return self.awaited.push_back(Awaited::End);
            }
            Some(Fault::Twice) => {
                self.to_server.push(request.clone(), wait);
                self.awaited.push_back(awaited);
                awaited = Awaited::Surplus;
            }
            Some(Fault::AgainLater(wait)) => {
                self.traffic.execute_later(request.clone(), wait);
            }
        }
        // Of subscriptions, pushes tell.
        if !command(&request).ends_with("SUBSCRIBE") {
            self.awaited.push_back(awaited);
        }
        self.to_server.push(request, wait);
    }

    fn take_reply(&mut self, reply: Vec<u8>) {
        let awaited = if is_push(&reply) { None } else { self.awaited.pop_front() };
        match awaited {
            None => self.to_client.push(reply, Duration::ZERO),
            Some(Awaited::Reply(wait)) => self.to_client.push(reply, wait),
            Some(Awaited::Surplus) => {}
            Some(Awaited::LostReply | Awaited::End) => self.is_cut = true,
        }
    }
}
