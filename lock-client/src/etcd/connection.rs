//! Requests to the members of etcd.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request,
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
    http::{Http, Message, whole},
    keys::Keys,
    messages::{Authenticated, Txn, TxnReply},
    server::{Member, Server},
    view::{Part, View},
};
use crate::backend::BackendError;

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
        self.ask(method, request, |member, message| self.exchange(member, message)).await
    }

    /// Carries out a transaction.
    pub(super) async fn transact(&self, transaction: &Txn) -> Result<TxnReply, Failure> {
        self.call("kv/txn", transaction).await
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
        let send = |member, message| self.exchange(member, message);
        self.ask_member(member, method, request.into(), &send).await
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
        let send = |member: Member, message| async move {
            let response = self.shared.http.open(&member, message).await?;
            if response.status().is_success() {
                return Ok(response.into_body());
            }
            let (status, body) = whole(&member, response).await?;
            Err(Failure::from_answer(&member, status, &body))
        };
        let body = self.ask(method, request, send).await?;
        Ok(Stream { body, current, read: Vec::new() })
    }

    /// Sends a request to one member after the other, until one has received it.
    async fn ask<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        method: &str,
        request: &impl Serialize,
        send: impl Fn(Member, Message) -> F,
    ) -> Result<T, Failure> {
        let request = Bytes::from(serde_json::to_vec(request).expect("a message is JSON"));
        let mut attempts = self.shared.server.members.len();
        loop {
            attempts -= 1;
            let number = *self.shared.current.borrow();
            let member = &self.shared.server.members[number];
            match self.ask_member(member, method, request.clone(), &send).await {
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
    async fn ask_member<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        member: &Member,
        method: &str,
        request: Bytes,
        send: &impl Fn(Member, Message) -> F,
    ) -> Result<T, Failure> {
        let asking = async {
            let token = self.log_in(member, None).await?;
            let sent = message(member, method, request.clone(), token.as_deref())?;
            let answer = send(member.clone(), sent).await;
            if token.is_none() || !matches!(answer, Err(Failure::LoggedOut(_))) {
                return answer;
            }
            let token = self.log_in(member, token).await?;
            let again = message(member, method, request, token.as_deref())?;
            // The password is right, so that a later login may succeed.
            send(member.clone(), again).await.map_err(|failure| match failure {
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
            let exchanged = self.shared.http.exchange(member, message, self.is_held);
            let (status, body) = exchanged.await?;
            let authenticated: Authenticated = serde_json::from_slice(&body)
                .map_err(|_| Failure::from_answer(member, status, &body))?;
            *login = Some(authenticated.token);
        }
        Ok(login.clone())
    }

    /// Sends a request, and parses the answer.
    async fn exchange<T: DeserializeOwned>(
        &self,
        member: Member,
        message: Message,
    ) -> Result<T, Failure> {
        let exchanged = self.shared.http.exchange(&member, message, self.is_held);
        let (status, body) = exchanged.await?;
        if !status.is_success() {
            return Err(Failure::from_answer(&member, status, &body));
        }
        // An error within a stream has no status of its own. An answer that can't be parsed may
        // belong to a request that was carried out.
        serde_json::from_slice(&body).map_err(|invalid| {
            match serde_json::from_slice::<Value>(&body) {
                Ok(value) if value.get("error").is_some() => {
                    Failure::from_answer(&member, status, &body)
                }
                _ => Failure::unavailable(&member, &format!("not an answer: {invalid}")),
            }
        })
    }
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
