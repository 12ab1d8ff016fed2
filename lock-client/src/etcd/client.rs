//! Locks in etcd, as a backend.

use std::{pin::Pin, sync::Arc, time::Duration};

use fence::{Holder, ResourceName, Token};
use futures_util::stream::try_unfold;
use serde_json::json;
use tokio::time::timeout;

use super::{
    attempt::Sharing,
    connection::{Connection, Purpose},
    http::Http,
    keys::{self, Keys},
    login,
    messages::{KeyValue, RangeReply, bytes},
    own_keys::OwnKeys,
    server::Server,
    session::{Sessions, whole_seconds},
    view::{Part, foreign},
    wakeups,
};
use crate::{
    InvalidUrl,
    backend::{
        Attempt, Backend, BackendError, BackendFuture, HeldNames, Ownership, Status, Wakeups,
        answer_timeout, debug_by_address, token,
    },
    terms::Order,
    ttl::Ttl,
};

/// How many answers one method may wait for. A method that needs more is repeated.
pub(super) const LONGEST_METHOD: u32 = 4;
/// How many keys a page of names is read from. One lock has a key for its owner and for each
/// waiter.
const PAGE: usize = 500;

/// Locks in etcd.
#[derive(Clone)]
pub struct Etcd {
    /// The requests of tries and reads.
    pub(super) tries: Connection,
    /// The requests of renewals and reissues. No other requests delay them.
    pub(super) renewals: Connection,
    /// The requests that delete keys, and those that seal sessions.
    pub(super) releases: Connection,
    pub(super) sessions: Sessions,
    pub(super) own: Arc<OwnKeys>,
}

debug_by_address!(Etcd);

impl Etcd {
    /// Makes a client of the etcd at a URL. It connects when it is first used.
    ///
    /// The URL is `etcd://[USER:PASSWORD@]HOST[:PORT],HOST…`, or begins with `etcds://` for
    /// encrypted connections. Name all members. The port is 2379 by default, and a user is one of
    /// etcd. The members need their JSON gateway, which they have by default. It does not take a user from
    /// a client's certificate. The section "etcd" of the README has the settings that name certificates.
    /// All parts of a URL are percent-encoded.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used, or names a file that can't be read.
    pub fn open(url: &str) -> Result<Self, InvalidUrl> {
        let server = Arc::new(Server::open(url)?);
        let (http, token) = (Http::new(&server), login::Token::default());
        let connection = |purpose| Connection::new(&server, &http, &token, purpose);
        Ok(Self {
            tries: connection(Purpose::Tries),
            renewals: connection(Purpose::Renewals),
            releases: connection(Purpose::Releases),
            sessions: Sessions::default(),
            own: Arc::default(),
        })
    }

    /// Waits this long for each answer, instead of half a second: 1 millisecond at least, and 1 hour at
    /// most. It suits an etcd that is far away, or that has slow disks: take twice the time of an answer, or
    /// more. A lease whose ttl is not several times longer is lost with one lost reply.
    pub fn answer_within(mut self, limit: Duration) -> Self {
        let answer_timeout = answer_timeout(limit);
        for connection in [&mut self.tries, &mut self.renewals, &mut self.releases] {
            connection.answer_timeout = answer_timeout;
        }
        self
    }

    /// Limits the time of a method to so many answers.
    pub(super) async fn within<T>(
        &self,
        answers: u32,
        method: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let limited = timeout(self.answer_timeout() * answers, method).await;
        limited.unwrap_or_else(|_| Err(self.unavailable("no answer in time")))
    }

    fn method<'a, T: 'a>(
        &'a self,
        method: impl Future<Output = Result<T, BackendError>> + Send + 'a,
    ) -> BackendFuture<'a, T> {
        Box::pin(self.within(LONGEST_METHOD, method))
    }

    pub(super) fn unavailable(&self, reason: &str) -> BackendError {
        BackendError::Unavailable(format!("{}: {reason}", self.address()).into())
    }

    /// Returns the time until a key expires, rounded up; `None` if it never does.
    pub(super) async fn remaining(&self, key: &KeyValue) -> Result<Option<Duration>, BackendError> {
        if key.lease == 0 {
            return Ok(None);
        }
        let left = self.tries.seconds_left(key.lease).await?;
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
        self.method(self.acquire(name, holder, ttl, order, Sharing::Client))
    }

    fn try_acquire_detachable<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        self.method(self.acquire(name, holder, ttl, order, Sharing::Nothing))
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        self.method(async move { self.renew_ownership(&Keys::new(name), ownership, ttl).await })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        self.method(async move { self.reissue_token(&Keys::new(name), ownership, above).await })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        _: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        self.method(async move {
            let keys = Keys::new(name);
            self.release_holder(&keys, &keys.place(holder)).await
        })
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        self.method(wakeups::subscribe(self, name, holder, order))
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        self.method(async move {
            let keys = Keys::new(name);
            let view = self.tries.view(&keys, Part::Owner).await?;
            let Some(owner) = view.owner() else {
                return Ok(Status::FREE);
            };
            let holder = keys::holder_in_queue(&owner.key.0).and_then(|id| id.parse().ok());
            let holder = holder.ok_or_else(|| foreign(owner))?;
            let ownership = Ownership { holder, grant: token(owner.create_revision)? };
            let remaining = self.remaining(owner).await?;
            let queued = view.count.saturating_sub(1);
            Ok(Status::of_owner(view.token(owner)?, ownership, remaining, queued))
        })
    }

    /// Reads the keys in their order, from the first that a name with this prefix may have.
    fn held_names(&self, prefix: &str) -> HeldNames {
        let (etcd, prefix) = (self.clone(), keys::prefix_of_names(prefix));
        Box::pin(try_unfold(Some(prefix.clone()), move |next| {
            let (etcd, prefix) = (etcd.clone(), prefix.clone());
            async move {
                let Some(next) = next else { return Ok(None) };
                let range = json!({
                    "key": bytes(&next), "range_end": bytes(keys::END), "limit": PAGE,
                });
                let read: RangeReply = etcd.tries.call("kv/range", &range).await?;
                let keys: Vec<_> = read.kvs.iter().map(|key| key.key.0.as_str()).collect();
                let with_prefix = keys.iter().take_while(|key| key.starts_with(&prefix)).count();
                let names = keys[..with_prefix].iter().filter_map(|key| keys::name_in_queue(key));
                let mut names: Vec<_> = names.collect();
                names.dedup();
                // A long queue is left out.
                let next = keys.last().filter(|_| with_prefix == PAGE).map(|last| {
                    keys::name_in_queue(last)
                        .map_or_else(|| format!("{last}\0"), |name| Keys::new(&name).queue_end())
                });
                Ok(Some((names, next)))
            }
        }))
    }

    fn detach(&self, ownership: &Ownership, token: Token) -> Token {
        // Its session ends after its time, unless another process keeps it alive.
        let holder = Some(ownership.holder.as_str());
        self.own.forget_where(|place| keys::holder_in_queue(place) == holder);
        token
    }

    fn check_ttl(&self, ttl: Ttl) -> BackendFuture<'_, ()> {
        self.method(async move {
            let (id, seconds) = (keys::shared_lease(), whole_seconds(ttl)?);
            self.tries.grant(id, seconds..=seconds).await?;
            // It has no key.
            self.tries.revoke(id).await
        })
    }

    fn wait_for_releases(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.wait_for_deletions())
    }

    fn answer_timeout(&self) -> Duration {
        self.tries.answer_timeout
    }

    fn address(&self) -> String {
        self.tries.server().to_string()
    }
}
