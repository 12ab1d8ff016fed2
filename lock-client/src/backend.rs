//! What a lock service must do.
//!
//! Waiting, deadlines, retries, renewal and leases are written once, above [`Backend`]. A backend
//! only says how to try, renew, reissue and release, and how a waiter is notified.
//!
//! A backend for another service needs four things from it:
//! - An atomic "take the lock if it is free".
//! - A counter per lock that grows with every grant, and can be raised.
//! - A time after which the lock is free by itself.
//! - A way to notify waiters.
//!
//! # What a backend must guarantee
//! 1. A token is higher than every token that was ever returned for this name, reissued ones
//!    included.
//! 2. `Unavailable` is the answer whenever the request may have been carried out. `Rejected` means
//!    that nothing was changed, and that a repetition would not help. So does `Invalid`, which is the
//!    answer for an order that the service does not have.
//! 3. Every method limits its own time. A renewal that hangs delays the next one, until the lease
//!    is lost.
//! 4. A release is carried out after the attempts that were sent before it. Otherwise it misses the
//!    grant that it should undo.
//! 5. `asked` is taken before the request that starts the ttl. The service may keep the lock for some
//!    seconds longer than the ttl, but not for less. A renewal may shorten the ttl.
//! 6. A release notifies the waiters: in no order all of them, in the fair order the first. So does
//!    a first waiter that leaves the queue. Expiry needs no notification: waiters know when it
//!    comes. A lost notification only costs time, because waiters also try without one.
//! 7. A subscription calls [`Notify::notify_one`] on its own `Notify`, also after it was connected
//!    anew. That remembers a notification until the waiter asks for it.
//!
//! Redlock keeps 1 to 7, but it uses a new holder for each round, and undoes by itself.

use std::{
    any::Any,
    error::Error,
    fmt::{self, Debug},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use futures_util::stream::{self, Stream};
use tokio::sync::Notify;

use crate::{clock::Moment, terms::Order, ttl::Ttl};

/// How long one request may take, if the backend does not say otherwise.
pub(crate) const DEFAULT_ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Limits how long an answer is waited for: to 1 millisecond at least, and 1 hour at most.
pub(crate) fn answer_timeout(timeout: Duration) -> Duration {
    timeout.clamp(Duration::from_millis(1), Duration::from_secs(3600))
}

/// The answer of a lock service that is still on its way.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// The names of the locks that are held, a page at a time. A page may be empty, a name may come
/// twice, and one that was acquired or released meanwhile may be missing.
pub type HeldNames =
    Pin<Box<dyn Stream<Item = Result<Vec<ResourceName>, BackendError>> + Send + 'static>>;

/// Shows a service as its address in debug texts. It has no password there.
macro_rules! debug_by_address {
    ($service:ident) => {
        impl std::fmt::Debug for $service {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($service))
                    .field(&$crate::backend::Backend::address(self))
                    .finish()
            }
        }
    };
}
pub(crate) use debug_by_address;

/// A lock service that returns a token with every grant.
///
/// The body of each method is `Box::pin(async move { … })`.
///
/// Methods return [`BackendError::Unavailable`] whenever the outcome is unknown. The caller then
/// repeats the request, as the same holder.
pub trait Backend: Debug + Send + Sync + 'static {
    /// Tries once to acquire the lock.
    ///
    /// If the holder already holds it, this returns the same token and grant again and sets the
    /// full ttl. So an attempt whose reply was lost may be repeated. If another client holds the
    /// lock and the order is fair, the holder waits in the queue from then on. It keeps its place
    /// as long as it tries again when its [nap](Contention::nap) ends, and when it is notified.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock may have been acquired. The caller
    /// [releases](Self::release) it, with no token.
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt>;

    /// Tries once to acquire a lock that another process may take over. It is otherwise as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// A backend needs it only if the locks of a client share a session there: this lock then has one
    /// of its own.
    fn try_acquire_detachable<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        self.try_acquire(name, holder, ttl, order)
    }

    /// Sets the full ttl if the lock still belongs to this ownership, and returns its present
    /// token. Returns `None` if the lock does not belong to it.
    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>>;

    /// Swaps the token for one that is higher than before and higher than `above`, if the lock
    /// still belongs to this ownership, and returns it. Returns `None` if the lock does not belong
    /// to it. The ttl stays as it is.
    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>>;

    /// Releases the lock if the holder holds it, and returns whether it did. A holder that waits in
    /// the queue leaves it.
    ///
    /// The answer is about this request alone. If an earlier release had no answer, and has released
    /// the lock, this returns `false`: nobody can tell that from a lock that was lost before.
    ///
    /// `token` is the last token that the lease was given. It is `None` if the caller never got a
    /// grant, and undoes what its unanswered attempts may have done.
    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        token: Option<Token>,
    ) -> BackendFuture<'a, bool>;

    /// Subscribes to the notifications that a waiter needs. Once this has returned, no notification
    /// is missed.
    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups>;

    /// Returns the lock's present state.
    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status>;

    /// Reads the names of the locks that are held and whose names have this prefix.
    ///
    /// A backend that can't tell answers with [`BackendError::Invalid`], as this one does.
    fn held_names(&self, _prefix: &str) -> HeldNames {
        let reason = format!("{} can't list its locks", self.address());
        Box::pin(stream::iter([Err(BackendError::Invalid(reason.into()))]))
    }

    /// Returns the token with which another client can adopt a lease that was given this token.
    ///
    /// What a backend keeps for each lock that it holds, it need not keep for this one any more.
    fn detach(&self, _ownership: &Ownership, token: Token) -> Token {
        token
    }

    /// Learns the token of a lease that another client has held until now. A renewal follows.
    ///
    /// A backend needs it only if its renewals depend on the token, or on what it keeps for a lock.
    fn adopt(&self, _ownership: &Ownership, _token: Token) {}

    /// Checks that the service grants this ttl, before a lock is adopted for it. A renewal alone would
    /// keep the lock for the next longer time that the service has.
    ///
    /// A backend needs it only if some ttls are [invalid](BackendError::Invalid), and its renewals
    /// don't report that.
    fn check_ttl(&self, _ttl: Ttl) -> BackendFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Waits for the releases that the backend sends after their callers have given up.
    ///
    /// A backend needs it only if it sends some.
    fn wait_for_releases(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {})
    }

    /// How long one request may take. A request without an answer is repeated for a multiple of it.
    fn answer_timeout(&self) -> Duration {
        DEFAULT_ANSWER_TIMEOUT
    }

    /// Returns the address of the lock service, without a password, for error messages.
    fn address(&self) -> String;
}

/// The outcome of one attempt to acquire a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The holder holds the lock.
    Granted {
        /// The fencing token.
        token: Token,
        /// The ownership that the token belongs to.
        ownership: Ownership,
        /// A moment before the granted request was sent. The lease's deadline is counted from it.
        asked: Moment,
    },
    /// Another client holds the lock, or is the next to get it.
    Busy(Contention),
}

/// Another client holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention {
    /// The time until the lock may be free, unless it is renewed or released; `None` if it never
    /// expires.
    pub remaining: Option<Duration>,
    /// The number of waiters before this one in the queue; `None` in no order.
    pub ahead: Option<u64>,
    /// How long this waiter may sleep until it must try again; `None` if it may choose.
    pub nap: Option<Duration>,
}

/// One ownership of a lock. The grant distinguishes it from another ownership of the same holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The owner.
    pub holder: Holder,
    /// The counter when the lock was granted; with several nodes, the highest of their counters. A
    /// reissue does not change it.
    pub grant: Token,
}

/// A subscription to a lock's release. It ends when this value is dropped.
#[must_use]
pub struct Wakeups {
    freed: Arc<Notify>,
    _subscription: Box<dyn Any + Send + Sync>,
}

impl Wakeups {
    /// Makes a subscription. The backend notifies `freed` when the lock may be free. It ends the
    /// subscription when `subscription` is dropped.
    pub fn new(freed: Arc<Notify>, subscription: impl Any + Send + Sync) -> Self {
        Self { freed, _subscription: Box::new(subscription) }
    }

    /// Waits until the lock may have been freed since the last call, or since the subscription.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no notification is missed.
    pub async fn next(&self) {
        self.freed.notified().await;
    }
}

impl Debug for Wakeups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeups").finish_non_exhaustive()
    }
}

/// The state of a lock at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The present owner; `None` if the lock is free.
    pub held: Option<HeldLock>,
    /// The last token issued; `None` if the counter doesn't exist.
    pub last_token: Option<u64>,
    /// The number of holders that wait in the queue.
    pub queued: u64,
}

impl Status {
    /// A lock that is free, in a service that keeps no counter of it.
    pub(crate) const FREE: Self = Self { held: None, last_token: None, queued: 0 };

    /// A lock that is held, in a service that records neither a label nor the time of the grant.
    pub(crate) fn of_owner(
        token: Token,
        ownership: Ownership,
        remaining: Option<Duration>,
        queued: u64,
    ) -> Self {
        let (since_ms, label, nodes) = (None, String::new(), None);
        let held = HeldLock { token, ownership, remaining, since_ms, label, nodes };
        Self { held: Some(held), last_token: Some(token.as_u64()), queued }
    }
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The owner's token.
    pub token: Token,
    /// The owner.
    pub ownership: Ownership,
    /// The time until the lock expires, unless it is renewed or released; `None` if it never does.
    pub remaining: Option<Duration>,
    /// The time of the grant by the client's clock, in milliseconds of Unix time; `None` if the lock
    /// service does not record it.
    pub since_ms: Option<u64>,
    /// The owner's label; empty without one. It proves nothing.
    pub label: String,
    /// The number of nodes on which the lock counts for the owner; `None` with a single server.
    pub nodes: Option<usize>,
}

/// Why a lock service did not do what it was asked. The source names the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// There was no answer, or no lasting one. The request may have been carried out. It may be
    /// repeated.
    #[error("the lock service is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The service rejected the request, and changed nothing. Repeating the request would not help.
    #[error("the lock service rejected the request")]
    Rejected(#[source] Box<dyn Error + Send + Sync>),
    /// The request itself is wrong, such as a ttl that the service never grants. Nothing was
    /// changed.
    #[error("the request is invalid")]
    Invalid(#[source] Box<dyn Error + Send + Sync>),
}

/// Makes the token of a lock whose service has this number for it.
pub(crate) fn token(number: i64) -> Result<Token, BackendError> {
    Token::try_from(number).map_err(|invalid| BackendError::Rejected(invalid.to_string().into()))
}

impl BackendError {
    /// Reports the failure of a method that may have changed something already: a rejection would say
    /// that it has not.
    pub(crate) fn after_a_change(self) -> Self {
        match self {
            Self::Rejected(source) | Self::Invalid(source) => Self::Unavailable(source),
            error => error,
        }
    }

    /// Reports the same failure to another caller that waited for it.
    pub(crate) fn repeated(&self) -> Self {
        match self {
            Self::Unavailable(source) => Self::Unavailable(source.to_string().into()),
            Self::Rejected(source) => Self::Rejected(source.to_string().into()),
            Self::Invalid(source) => Self::Invalid(source.to_string().into()),
        }
    }
}
