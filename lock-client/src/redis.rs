//! Locks in Redis: one node, a primary that Sentinels know, or a Cluster.
//!
//! **Where the token comes from.** Beside each lock stands a counter. One script takes the lock, if
//! it is free, and increments the counter: the new count is the token.
//!
//! **Why it grows.** Redis runs one script at a time, and nothing ever lowers the counter. A counter
//! that doesn't exist starts at the client's Unix time in milliseconds, which is above all that it
//! ever issued, unless clocks went back or the lock was granted more than 1 000 times a second
//! throughout. To start it elsewhere, set it before its first use: `SET fenced:{NAME}:token 0`.
//!
//! **What breaks that.** A Redis that loses writes: restarted without persistence or from an old
//! snapshot, failed over to a replica that had not heard, or evicting keys. Then a token may be
//! issued twice. The storage tells the two holders apart, and refuses the later one; if that one
//! holds the lock, it goes on with a higher token ([`Lease::reissue`](crate::Lease::reissue)).
//! `lock-client doctor` tells whether a Redis may lose writes, and what to set.
//!
//! # Keys
//! `fenced:{NAME}:lock`, `:token`, `:queue` and `:queue:alive`, and the channels `:freed` and
//! `:freed:HOLDER`, in which `%`, `{` and `}` of the name stand as `%25`, `%7B` and `%7D`: the braces
//! are Redis Cluster's hash tag, which keeps a lock's keys in one slot.
//!
//! # Waiting
//! Waiters hear of a lock that was freed over one connection per client. Those who wait in no order
//! hear it all at once, and one of each client tries; of those who stand in the queue, the first
//! hears it, and tries. Should a message be lost, they look for themselves, at the latest when the
//! present owner's ttl is over.
//!
//! # Lost connections
//! The connection is made when it is first needed, and again after it was lost, to the primary of
//! that moment. A request whose reply was lost is [`Unavailable`](BackendError::Unavailable): it may
//! have been carried out. After SCRIPT FLUSH, scripts are sent again.

mod connection;
pub(crate) mod keys;
pub(crate) mod line;
pub(crate) mod script;
mod server;
pub(crate) mod wakeups;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use fence::{Holder, ResourceName, Token};
use redis::FromRedisValue;

use self::{
    connection::Connection,
    keys::Keys,
    script::{ACQUIRE, Call, REISSUE, RELEASE, RENEW, STATUS},
    wakeups::Subscriptions,
};
use crate::{
    Backend, Moment, Order, Ttl,
    backend::{Attempt, BackendError, Contention, HeldLock, Ownership, Status, Wakeups},
};

pub(crate) use self::connection::LONGEST_SILENCE;
pub use self::server::InvalidUrl;
pub use self::server::Server;

pub use self::server::has_password;

/// Locks in Redis.
#[derive(Clone)]
pub struct Redis {
    connection: Connection,
    subscriptions: Subscriptions,
    retention_ms: u64,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("retention_ms", &self.retention_ms).finish_non_exhaustive()
    }
}

impl Redis {
    /// Makes a client of the Redis at a URL. It connects when it is first used.
    ///
    /// | Redis | URL |
    /// |---|---|
    /// | one node | `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]` |
    /// | on a Unix socket | `redis+unix:///SOCKET[?db=DATABASE&user=USER&pass=PASSWORD]` |
    /// | a primary that Sentinels know | `redis+sentinel://[[USER]:PASSWORD@]SENTINEL[:PORT],…/NAME[/DATABASE]` |
    /// | a Cluster | `redis+cluster://[[USER]:PASSWORD@]NODE[:PORT],…` |
    ///
    /// With `rediss` for `redis`, the connections are encrypted (TLS), the Sentinels' too. Then the
    /// server's certificate must be signed by one that this system trusts; a file with others can be
    /// named in the environment variable `SSL_CERT_FILE`. Users and passwords are percent-encoded;
    /// they are those of Redis, and Sentinels are asked without. Of a Cluster, name several nodes:
    /// waiters listen at one of those that are named.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used.
    pub fn open(url: &str) -> Result<Self, InvalidUrl> {
        let server = Arc::new(Server::at(url)?);
        Ok(Self {
            connection: Connection::new(server.clone()),
            subscriptions: Subscriptions::new(server),
            retention_ms: 0,
        })
    }

    /// Keeps the counter of a name that isn't locked for so long only, and not for ever: for where
    /// names are many and are used for a while, such as order numbers.
    ///
    /// # Safety of tokens
    /// A counter that is gone starts again at the client's Unix time in milliseconds. That is above
    /// all that it ever issued, as long as
    /// - no client's clock is behind another's, or goes back, by more than the retention, and Redis'
    ///   own doesn't jump ahead by as much,
    /// - the name was not granted more than 1 000 times a second on the average since it began, and
    /// - nobody has lifted the counter above the clock: by setting it, or by a reissue for a storage
    ///   that had seen such a token.
    ///
    /// Where this doesn't hold, the storage refuses the lower token, and the holder goes on with a
    /// higher one if it has not claimed yet; nothing is lost, but work may have to be done again.
    pub fn keep_counters_for(self, retention: Duration) -> Self {
        // As long as Lua can say it exactly, which is 285 thousand years.
        let millis = retention.as_millis().clamp(1, 1 << 53);
        Self { retention_ms: millis.try_into().expect("it is below 2^53"), ..self }
    }

    async fn run<T: FromRedisValue>(&self, call: Call) -> Result<T, BackendError> {
        self.connection.run(&call).await
    }
}

#[async_trait]
impl Backend for Redis {
    async fn try_acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
    ) -> Result<Attempt, BackendError> {
        let keys = Keys::of(name);
        let call = ACQUIRE
            .with([keys.lock(), keys.counter(), keys.queue(), keys.alive()])
            .arg(holder.as_str())
            .arg(ttl.as_millis())
            .arg(unix_millis())
            .arg(u8::from(order == Order::Fair))
            .arg(self.retention_ms);
        let asked = Moment::now();
        match self.run::<Vec<i64>>(call).await?[..] {
            [1, token, grant] => {
                let ownership = Ownership { holder: holder.clone(), grant: valid_token(grant)? };
                Ok(Attempt::Granted { token: valid_token(token)?, ownership, asked })
            }
            [0, remaining] => {
                Ok(Attempt::Busy(Contention { remaining: remaining_time(remaining) }))
            }
            _ => Err(not_ours(name)),
        }
    }

    async fn renew(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError> {
        let keys = Keys::of(name);
        let call = RENEW
            .with([keys.lock(), keys.counter()])
            .arg(ownership.holder.as_str())
            .arg(ownership.grant.as_u64())
            .arg(ttl.as_millis())
            .arg(self.retention_ms);
        token_of_ours(self.run(call).await?)
    }

    async fn reissue(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        above: Token,
    ) -> Result<Option<Token>, BackendError> {
        let keys = Keys::of(name);
        let call = REISSUE
            .with([keys.lock(), keys.counter()])
            .arg(ownership.holder.as_str())
            .arg(ownership.grant.as_u64())
            .arg(above.as_u64())
            .arg(unix_millis())
            .arg(self.retention_ms);
        token_of_ours(self.run(call).await?)
    }

    async fn release(
        &self,
        name: &ResourceName,
        holder: &Holder,
        _: Option<Token>,
    ) -> Result<bool, BackendError> {
        let keys = Keys::of(name);
        let call = RELEASE
            .with([keys.lock(), keys.queue(), keys.alive()])
            .arg(holder.as_str())
            .arg(keys.freed());
        self.run(call).await
    }

    async fn subscribe(
        &self,
        name: &ResourceName,
        holder: &Holder,
        order: Order,
    ) -> Result<Wakeups, BackendError> {
        let keys = Keys::of(name);
        let channel = match order {
            Order::Unordered => keys.freed(),
            Order::Fair => keys.freed_for(holder),
        };
        self.subscriptions.subscribe(channel).await
    }

    async fn status(&self, name: &ResourceName) -> Result<Status, BackendError> {
        let keys = Keys::of(name);
        status(name, self.run(STATUS.with([keys.lock(), keys.counter(), keys.queue()])).await?)
    }
}

/// What the script of the status answers.
pub(crate) type StatusAnswer = (Option<String>, i64, Option<u64>, u64);

pub(crate) fn status(
    name: &ResourceName,
    (lock, remaining, last_token, queued): StatusAnswer,
) -> Result<Status, BackendError> {
    let held = lock.map(|lock| held(&lock, remaining).ok_or_else(|| not_ours(name)));
    Ok(Status { held: held.transpose()?, last_token, queued })
}

pub(crate) fn unix_millis() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since_epoch.expect("the clock is set after 1970").as_millis();
    millis.try_into().expect("it is not yet the year 584 million")
}

fn held(lock: &str, remaining: i64) -> Option<HeldLock> {
    let [token, grant, holder] = lock.splitn(3, ' ').collect::<Vec<_>>().try_into().ok()?;
    let ownership = Ownership { holder: holder.parse().ok()?, grant: grant.parse().ok()? };
    Some(HeldLock { token: token.parse().ok()?, ownership, remaining: remaining_time(remaining) })
}

pub(crate) fn remaining_time(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// What a script answers that matches the ownership: 0 if it is over.
fn token_of_ours(number: i64) -> Result<Option<Token>, BackendError> {
    if number == 0 { Ok(None) } else { valid_token(number).map(Some) }
}

pub(crate) fn valid_token(number: i64) -> Result<Token, BackendError> {
    Token::try_from(number).map_err(|error| BackendError::Rejected(error.into()))
}

fn not_ours(name: &ResourceName) -> BackendError {
    BackendError::Rejected(format!("{} holds no lock of ours", Keys::of(name).lock()).into())
}
