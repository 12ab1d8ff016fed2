//! Requests to the members of etcd.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

use super::{
    failure::Failure,
    http::{Http, Line, Message, Pool},
    keys::Keys,
    login::{Login, Token},
    messages::{Txn, TxnReply},
    server::{Member, Server},
    view::{Part, View},
};
use crate::backend::{BackendError, DEFAULT_ANSWER_TIMEOUT};

/// How long an answer may take at least until a kept connection is given up, though its caller has
/// given up.
const LONGEST_ANSWER: Duration = Duration::from_secs(5);
/// How many further connections tries have at most.
const MOST_FOR_TRIES: usize = 12;
/// The same for renewals, and for releases.
const MOST_FOR_HELD_LOCKS: usize = 4;

/// What requests are for. Those for one purpose delay none for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Tries,
    Renewals,
    Releases,
}

impl Purpose {
    pub(super) const NUMBER: usize = 3;
}

/// A client's requests for one purpose. They go to one member, until it fails.
#[derive(Clone)]
pub(super) struct Connection {
    server: Arc<Server>,
    pub(super) purpose: Purpose,
    pool: Arc<Pool>,
    /// The number of the member that requests go to.
    pub(super) current: Arc<watch::Sender<usize>>,
    pub(super) login: Arc<Login>,
    pub(super) answer_timeout: Duration,
}

impl Connection {
    /// Prepares requests. They connect when they are first sent.
    pub(super) fn new(server: &Arc<Server>, http: &Http, token: &Token, purpose: Purpose) -> Self {
        let pool = match purpose {
            Purpose::Tries => Pool::new(http, MOST_FOR_TRIES),
            Purpose::Renewals | Purpose::Releases => Pool::with_kept(http, MOST_FOR_HELD_LOCKS),
        };
        let (server, pool) = (server.clone(), Arc::new(pool));
        let (current, login) = (Arc::new(watch::Sender::new(0)), Arc::new(Login::new(token)));
        Self { server, purpose, pool, current, login, answer_timeout: DEFAULT_ANSWER_TIMEOUT }
    }

    /// The same requests, which wait this long for each answer.
    pub(super) fn with_answer_timeout(&self, answer_timeout: Duration) -> Self {
        Self { answer_timeout, ..self.clone() }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn http(&self) -> &Http {
        self.pool.http()
    }

    /// Makes the kept connection, if there is none.
    pub(super) async fn keep(&self) -> Result<(), Failure> {
        let member = self.current();
        self.in_time(member, self.pool.keep(member)).await.inspect_err(|_| self.leave(member))
    }

    /// The same, after a try that had an answer, and to its member. So the first request does not have to
    /// find a member that answers.
    pub(super) async fn keep_after(&self, tries: &Self) -> Result<(), Failure> {
        if !self.pool.has_kept(self.current()) {
            self.current.send_replace(*tries.current.borrow());
        }
        self.keep().await
    }

    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        self.call_over(self.line().await?, method, request).await
    }

    /// Sends a request to one member after the other, until one has received it.
    async fn call_over<T: DeserializeOwned>(
        &self,
        mut line: Line,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        let request = encoded(request);
        let mut attempts = self.server().members.len();
        loop {
            attempts -= 1;
            let member = self.current();
            match self.ask(&mut line, member, method, &request).await {
                Err(Failure::NotSent(_)) if attempts > 0 => self.leave(member),
                Err(failure @ Failure::Other(BackendError::Unavailable(_))) => {
                    self.leave(member);
                    return Err(failure);
                }
                answer => return answer,
            }
        }
    }

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

    pub(super) async fn view(&self, keys: &Keys, part: Part) -> Result<View, BackendError> {
        let success = View::reads(keys, part).to_vec();
        View::parse(self.transact(&Txn { success, ..Txn::default() }).await?)
    }

    pub(super) async fn call_member<T: DeserializeOwned>(
        &self,
        member: &Member,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        self.ask(&mut self.line().await?, member, method, &encoded(request)).await
    }

    /// Waits for a connection. A request that gets none was not sent, whatever the member does.
    pub(super) async fn line(&self) -> Result<Line, Failure> {
        timeout(self.answer_timeout, self.pool.line()).await.map_err(|_| {
            let reason = format!("{}: all connections of this client are busy", self.server());
            Failure::NotSent(BackendError::Unavailable(reason.into()))
        })
    }

    fn current(&self) -> &Member {
        &self.server.members[*self.current.borrow()]
    }

    pub(super) async fn in_time<T>(
        &self,
        member: &Member,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        timeout(self.answer_timeout, answer).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} ms", self.answer_timeout.as_millis());
            Err(Failure::unavailable(member, &reason))
        })
    }

    /// Lets requests go to the member after this one, unless they already go to another.
    pub(super) fn leave(&self, member: &Member) {
        let members = &self.server().members;
        self.current.send_if_modified(|current| {
            let leaves = members.len() > 1 && members[*current] == *member;
            if leaves {
                *current = (*current + 1) % members.len();
            }
            leaves
        });
    }

    /// Sends a request to a member, over the kept connection if no other can be made.
    async fn ask<T: DeserializeOwned>(
        &self,
        line: &mut Line,
        member: &Member,
        method: &str,
        request: &Bytes,
    ) -> Result<T, Failure> {
        let asking = async {
            let answer = self.ask_logged_in(line, member, method, request).await;
            // Here, this does not log in: a request that has the kept connection may wait for that.
            if matches!(answer, Err(Failure::NotSent(_))) && line.wait_for_kept(member).await {
                return self.ask_logged_in(line, member, method, request).await;
            }
            answer
        };
        self.in_time(member, asking).await
    }

    /// Sends a request to a member, at most twice: if its login is not valid any more, this logs in
    /// again.
    async fn ask_logged_in<T: DeserializeOwned>(
        &self,
        line: &mut Line,
        member: &Member,
        method: &str,
        request: &Bytes,
    ) -> Result<T, Failure> {
        let mut expired = None;
        loop {
            let token = self.log_in(line, member, expired.as_ref()).await?;
            let answer = self.exchange(line, member, method, request, token.as_deref()).await;
            match answer {
                // The password is right, so that a later login may succeed.
                Err(Failure::LoggedOut(reason)) if expired.is_some() => {
                    return Err(Failure::Other(BackendError::Unavailable(reason.into())));
                }
                Err(Failure::LoggedOut(_)) if token.is_some() => expired = token,
                answer => return answer,
            }
        }
    }

    /// Returns the token of the login, but not an expired one; `None` without a user.
    async fn log_in(
        &self,
        line: &mut Line,
        member: &Member,
        expired: Option<&String>,
    ) -> Result<Option<String>, Failure> {
        let Some(user) = &self.server.user else { return Ok(None) };
        let authenticate = async {
            let request = encoded(&json!({ "name": user.name, "password": user.password }));
            self.exchange(line, member, "auth/authenticate", &request, None).await
        };
        self.login.token_or_log_in(expired, authenticate).await.map(Some)
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        line: &mut Line,
        member: &Member,
        method: &str,
        request: &Bytes,
        token: Option<&str>,
    ) -> Result<T, Failure> {
        let message = message(member, method, request.clone(), token)?;
        let longest = self.answer_timeout.max(LONGEST_ANSWER);
        let (status, body) = line.exchange(member, message, longest).await?;
        parse(member, status, &body)
    }
}

pub(super) fn encoded(request: &impl Serialize) -> Bytes {
    serde_json::to_vec(request).expect("a message is JSON").into()
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

pub(super) fn message(
    member: &Member,
    method: &str,
    request: Bytes,
    token: Option<&str>,
) -> Result<Message, Failure> {
    let mut message = Request::post(format!("/v3/{method}"))
        .header(HOST, member.to_string())
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

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn login_waits_for_no_kept_connection() {
        // 1. A member that takes one connection, and answers each request as a login.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("etcd://u:p@{}", listener.local_addr().unwrap());
        let server = Arc::new(Server::open(&url).unwrap());
        let (http, token) = (Http::new(&server), Token::default());
        let renewals = Connection::new(&server, &http, &token, Purpose::Renewals);
        renewals.keep().await.unwrap();
        let (mut taken, _) = listener.accept().await.unwrap();
        drop(listener);
        tokio::spawn(async move {
            while taken.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"token\":\"t\"}";
                taken.write_all(answer).await.unwrap();
            }
        });
        // 2. One request has the kept connection, and the other one logs in first.
        let mut kept = renewals.line().await.unwrap();
        let mut further = renewals.line().await.unwrap();
        let (member, request) = (&server.members[0], Bytes::from_static(b"{}"));
        let first = renewals.ask::<Value>(&mut further, member, "kv/txn", &request);
        let second = async {
            let answer = renewals.ask::<Value>(&mut kept, member, "kv/txn", &request).await;
            drop(kept);
            answer
        };
        let (first, second) = tokio::join!(first, second);
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    }
}
