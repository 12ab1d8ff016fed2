//! Requests to the members of etcd.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

use super::{
    connector::Connector,
    failure::Failure,
    messages::{Authenticated, Credentials},
    server::{Member, Server},
};
use crate::backend::BackendError;

/// The connections of a client. Requests go to one member, until it fails.
#[derive(Clone)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    pub(super) answer_timeout: Duration,
}

struct Shared {
    server: Server,
    http: Client<Connector, Full<Bytes>>,
    /// The number of the member that requests go to.
    current: watch::Sender<usize>,
    /// The token of the user's login.
    login: Mutex<Option<String>>,
}

impl Connection {
    pub(super) fn new(server: Server, answer_timeout: Duration) -> Self {
        let http = Client::builder(TokioExecutor::new()).build(Connector::new(&server));
        let (current, login) = (watch::Sender::new(0), Mutex::new(None));
        Self { shared: Arc::new(Shared { server, http, current, login }), answer_timeout }
    }

    pub(super) fn answer_within(self, answer_timeout: Duration) -> Self {
        Self { answer_timeout, ..self }
    }

    pub(super) fn server(&self) -> &Server {
        &self.shared.server
    }

    /// Sends one request, and returns the answer.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        self.ask(method, request, parsed).await
    }

    /// Sends one request to this member, and returns the answer.
    pub(super) async fn call_member<T: DeserializeOwned>(
        &self,
        member: &Member,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        let request = serde_json::to_vec(request).expect("a message is JSON");
        self.ask_in_time(member, method, request.into(), &parsed).await
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
        let reading = |member: Member, response: Response<Incoming>| async move {
            let status = response.status();
            if status.is_success() {
                return Ok(response.into_body());
            }
            let body = whole(&member, response).await?;
            Err(Failure::from_answer(&member, status, &body))
        };
        let body = self.ask(method, request, reading).await?;
        Ok(Stream { body, current, read: Vec::new() })
    }

    /// Sends a request to one member after the other, until one has received it.
    async fn ask<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        method: &str,
        request: &impl Serialize,
        read: impl Fn(Member, Response<Incoming>) -> F,
    ) -> Result<T, Failure> {
        let request = Bytes::from(serde_json::to_vec(request).expect("a message is JSON"));
        let mut attempts = self.shared.server.members.len();
        loop {
            attempts -= 1;
            let number = *self.shared.current.borrow();
            let member = &self.shared.server.members[number];
            match self.ask_in_time(member, method, request.clone(), &read).await {
                Err(Failure::NotSent(_)) if attempts > 0 => self.fail_over_from(number),
                Err(failure @ Failure::Other(BackendError::Unavailable(_))) => {
                    self.fail_over_from(number);
                    return Err(failure);
                }
                answer => return answer,
            }
        }
    }

    /// Sends a request to a member, and limits the time for its answer.
    async fn ask_in_time<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        member: &Member,
        method: &str,
        request: Bytes,
        read: &impl Fn(Member, Response<Incoming>) -> F,
    ) -> Result<T, Failure> {
        let asking = self.ask_member(member, method, request, read);
        timeout(self.answer_timeout, asking).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} ms", self.answer_timeout.as_millis());
            Err(Failure::unavailable(member, &reason))
        })
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

    /// Sends a request to a member. If its login is not valid any more, this logs in again.
    async fn ask_member<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        member: &Member,
        method: &str,
        request: Bytes,
        read: &impl Fn(Member, Response<Incoming>) -> F,
    ) -> Result<T, Failure> {
        let token = self.log_in(member, None).await?;
        let response = self.send(member, method, request.clone(), token.as_deref()).await?;
        match read(member.clone(), response).await {
            Err(Failure::LoggedOut(_)) if token.is_some() => {
                let token = self.log_in(member, token).await?;
                let response = self.send(member, method, request, token.as_deref()).await?;
                let answer = read(member.clone(), response).await;
                // The password is right, so that a later login may succeed.
                answer.map_err(|failure| match failure {
                    Failure::LoggedOut(reason) => {
                        Failure::Other(BackendError::Unavailable(reason.into()))
                    }
                    failure => failure,
                })
            }
            answer => answer,
        }
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
            let credentials =
                Credentials { name: user.name.clone(), password: user.password.clone() };
            let request = serde_json::to_vec(&credentials).expect("a message is JSON");
            let response = self.send(member, "auth/authenticate", request.into(), None).await?;
            let status = response.status();
            let body = whole(member, response).await?;
            let authenticated: Authenticated = serde_json::from_slice(&body)
                .map_err(|_| Failure::from_answer(member, status, &body))?;
            *login = Some(authenticated.token);
        }
        Ok(login.clone())
    }

    async fn send(
        &self,
        member: &Member,
        method: &str,
        request: Bytes,
        token: Option<&str>,
    ) -> Result<Response<Incoming>, Failure> {
        let mut message = Request::post(member.method(method))
            .header(CONTENT_TYPE, "application/json")
            // A member without a leader rejects requests at once, and ends its streams.
            .header("Grpc-Metadata-hasleader", "true");
        if let Some(token) = token {
            message = message.header(AUTHORIZATION, token);
        }
        let message = message.body(Full::new(request));
        let message = message.map_err(|_| {
            Failure::unavailable(member, "the token of the login is no header of HTTP")
        })?;
        let sending = self.shared.http.request(message).await;
        sending.map_err(|error| Failure::from_http(member, &error))
    }
}

/// Reads an answer, and parses it.
async fn parsed<T: DeserializeOwned>(
    member: Member,
    response: Response<Incoming>,
) -> Result<T, Failure> {
    let status = response.status();
    let body = whole(&member, response).await?;
    if !status.is_success() {
        return Err(Failure::from_answer(&member, status, &body));
    }
    // An error within a stream has no status of its own. An answer that can't be parsed may belong to
    // a request that was carried out.
    serde_json::from_slice(&body).map_err(|invalid| {
        match serde_json::from_slice::<serde_json::Value>(&body) {
            Ok(value) if value.get("error").is_some() => {
                Failure::from_answer(&member, status, &body)
            }
            _ => Failure::unavailable(&member, &format!("not an answer: {invalid}")),
        }
    })
}

/// Reads the body of an answer.
async fn whole(member: &Member, response: Response<Incoming>) -> Result<Bytes, Failure> {
    match response.into_body().collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(Failure::unavailable(member, &error.to_string())),
    }
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
