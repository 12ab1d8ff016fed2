//! Locks in etcd, as a backend.

use std::{fmt, time::Duration};

use fence::{Holder, ResourceName, Token};
use tokio::time::timeout;

use super::{
    attempt::Sharing,
    connection::Connection,
    failure::Failure,
    keys::{self, Keys},
    leases::whole_seconds,
    messages::{KeyValue, Txn, TxnReply},
    names,
    own::OwnHolders,
    server::{InvalidEtcdUrl, Server},
    session::Sessions,
    view::{Part, View, foreign, token},
    wakeups,
};
use crate::{
    backend::{
        Attempt, Backend, BackendError, BackendFuture, DEFAULT_ANSWER_TIMEOUT, HeldLock, HeldNames,
        Ownership, Status, Wakeups,
    },
    terms::Order,
    ttl::Ttl,
};

/// How many answers one method may wait for. A method that needs more is repeated.
const LONGEST_METHOD: u32 = 4;

/// Locks in etcd.
#[derive(Clone)]
pub struct Etcd {
    pub(super) connection: Connection,
    pub(super) sessions: Sessions,
    pub(super) own: OwnHolders,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("server", &self.address())
            .field("answer_timeout", &self.answer_timeout())
            .finish_non_exhaustive()
    }
}

impl Etcd {
    /// Makes a client of the etcd at a URL. It connects when it is first used.
    ///
    /// The URL is `etcd://[USER:PASSWORD@]HOST[:PORT],HOST…`, or begins with `etcds://` for encrypted
    /// connections. Name all members. The port is 2379 by default, and a user is one of etcd. The
    /// members need their JSON gateway, which they have by default.
    ///
    /// With TLS, a member's certificate must be signed by one that the system trusts. The
    /// environment variable `SSL_CERT_FILE` may name a file with others. Settings follow a `?`, with
    /// `&` between them. All parts of a URL are percent-encoded.
    ///
    /// | setting | meaning |
    /// |---|---|
    /// | `tls-ca=FILE` | certificates to trust, not the system's |
    /// | `tls-cert=FILE&tls-key=FILE` | the client's certificate and key |
    ///
    /// The files are PEM. They are read again for each new connection. If they can't be used then, the
    /// last good ones are, and the log says so. etcd's gateway does not take a user from a client's
    /// certificate. Other settings are rejected.
    ///
    /// # Errors
    /// [`InvalidEtcdUrl`] if the URL can't be used, or names a file that can't be read.
    pub fn open(url: &str) -> Result<Self, InvalidEtcdUrl> {
        let server = Server::parse(url)?;
        let connection = Connection::new(server, DEFAULT_ANSWER_TIMEOUT);
        Ok(Self { connection, sessions: Sessions::default(), own: OwnHolders::default() })
    }

    /// Waits this long for each answer of etcd, instead of half a second. It suits an etcd that is
    /// far away, or that has slow disks: take twice the time of an answer, or more. A lease whose ttl
    /// is not several times longer is lost with one lost reply.
    ///
    /// It is 1 millisecond at least, and 1 hour at most.
    pub fn answer_within(self, limit: Duration) -> Self {
        let answer_timeout = limit.clamp(Duration::from_millis(1), Duration::from_secs(3600));
        Self { connection: self.connection.answer_within(answer_timeout), ..self }
    }

    /// Limits the time of a method.
    async fn within<T>(
        &self,
        method: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let limit = self.answer_timeout() * LONGEST_METHOD;
        timeout(limit, method).await.unwrap_or_else(|_| Err(self.unavailable("no answer in time")))
    }

    pub(super) fn unavailable(&self, reason: &str) -> BackendError {
        BackendError::Unavailable(format!("{}: {reason}", self.address()).into())
    }

    pub(super) async fn transact(&self, transaction: &Txn) -> Result<TxnReply, BackendError> {
        Ok(self.connection.call("kv/txn", transaction).await?)
    }

    /// Reads a lock.
    pub(super) async fn view(&self, keys: &Keys, part: Part) -> Result<View, BackendError> {
        let success = View::reads(keys, part).to_vec();
        View::parse(self.transact(&Txn { success, ..Txn::default() }).await?)
    }

    /// Returns the time until a key expires, rounded up; `None` if it never does.
    pub(super) async fn remaining(&self, key: &KeyValue) -> Result<Option<Duration>, BackendError> {
        if key.lease == 0 {
            return Ok(None);
        }
        let left = self.connection.seconds_left(key.lease).await?;
        Ok(Some(Duration::from_secs(left + 1)))
    }
}

impl Backend for Etcd {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(self.within(self.acquire(name, holder, ttl, order, Sharing::Client)))
    }

    fn try_acquire_detachable<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(self.within(self.acquire(name, holder, ttl, order, Sharing::Nothing)))
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(
            self.within(
                async move { self.renew_ownership(&Keys::new(name), ownership, ttl).await },
            ),
        )
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(
            self.within(
                async move { self.reissue_token(&Keys::new(name), ownership, above).await },
            ),
        )
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        _: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(self.within(async move { self.release_holder(&Keys::new(name), holder).await }))
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(self.within(wakeups::subscribe(self, name, holder, order)))
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        Box::pin(self.within(async move {
            let keys = Keys::new(name);
            let view = self.view(&keys, Part::Owner).await?;
            let Some(owner) = view.owner() else {
                return Ok(Status { held: None, last_token: None, queued: 0 });
            };
            let holder = keys.holder(&owner.key.0).ok_or_else(|| foreign(owner))?;
            let token = view.token(owner)?;
            let held = HeldLock {
                token,
                ownership: Ownership { holder, grant: self::token(owner.create_revision)? },
                remaining: self.remaining(owner).await?,
                since_ms: None,
                label: String::new(),
                nodes: None,
            };
            let queued = view.count.saturating_sub(1);
            Ok(Status { held: Some(held), last_token: Some(token.as_u64()), queued })
        }))
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        names::held(self.clone(), prefix)
    }

    fn check_ttl(&self, ttl: Ttl) -> BackendFuture<'_, ()> {
        Box::pin(self.within(async move {
            let (id, seconds) = (keys::shared_lease(), whole_seconds(ttl)?);
            match self.connection.grant(id, seconds..=seconds, seconds).await? {
                // It has no key.
                Some(_) => self.connection.revoke(id).await,
                None => Err(Failure::LeaseExists.into()),
            }
        }))
    }

    fn answer_timeout(&self) -> Duration {
        self.connection.answer_timeout
    }

    fn address(&self) -> String {
        self.connection.server().to_string()
    }
}
