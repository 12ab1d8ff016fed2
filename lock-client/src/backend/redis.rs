//! Locks in one Redis.
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
//! issued twice. The storage tells the two holders apart, and refuses the later one.
//!
//! # Keys
//! `fenced:{NAME}:lock` and `fenced:{NAME}:token`, in which `%`, `{` and `}` of the name stand as
//! `%25`, `%7B` and `%7D`: the braces are Redis Cluster's hash tag, which keeps both in one slot.
//!
//! # Lost connections
//! The connection is made when it is first needed, and again after it was lost. A request whose
//! reply was lost is [`Unavailable`](BackendError::Unavailable): it may have been carried out.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use fence::{Holder, ResourceName, Token};
use redis::{
    Client, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError, Script, ScriptInvocation,
    ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig},
    io::tcp::TcpSettings,
};
use tokio::time::sleep;

use super::{Attempt, Backend, BackendError, Held, Ownership, Status};
use crate::Ttl;

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(2);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long to wait between two tries at most, however long the owner may still keep the lock: it
/// may release it at any time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/acquire.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/renew.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/release.lua")));
static STATUS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/status.lua")));

/// Locks in one Redis.
#[derive(Clone)]
pub struct Redis {
    connection: ConnectionManager,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

impl Redis {
    /// Makes a client of the Redis at a URL: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, or
    /// `redis+unix:///SOCKET`. It connects when it is first used.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn open(url: &str) -> Result<Self, InvalidUrl> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECTION_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            // Whoever asks tries again, for as long as it has time.
            .set_number_of_retries(0);
        let info = url.into_connection_info().map_err(InvalidUrl)?;
        let client = Client::open(info.set_tcp_settings(tcp_settings())).map_err(InvalidUrl)?;
        let connection =
            ConnectionManager::new_lazy_with_config(client, config).map_err(InvalidUrl)?;
        Ok(Self { connection })
    }

    /// Runs a script in one round trip, or three where this Redis hasn't seen it yet.
    async fn run<T: FromRedisValue>(
        &self,
        script: &mut ScriptInvocation<'_>,
    ) -> Result<T, BackendError> {
        script.invoke_async(&mut self.connection.clone()).await.map_err(BackendError::from)
    }
}

/// The URL can't be used.
#[derive(Debug, thiserror::Error)]
#[error("not a usable Redis URL: {0}")]
pub struct InvalidUrl(#[source] RedisError);

impl From<RedisError> for BackendError {
    fn from(error: RedisError) -> Self {
        let passing = matches!(
            error.kind(),
            ErrorKind::Io
                | ErrorKind::Server(
                    ServerErrorKind::BusyLoading
                        | ServerErrorKind::ClusterDown
                        | ServerErrorKind::MasterDown
                        | ServerErrorKind::TryAgain
                )
        );
        if passing { Self::Unavailable(error.into()) } else { Self::Rejected(error.into()) }
    }
}

#[async_trait]
impl Backend for Redis {
    async fn try_acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
    ) -> Result<Attempt, BackendError> {
        let mut script = ACQUIRE.key(lock_key(name));
        script.key(counter_key(name)).arg(holder.as_str()).arg(ttl.as_millis()).arg(unix_millis());
        match self.run::<Vec<i64>>(&mut script).await?[..] {
            [1, token, grant] => {
                Ok(Attempt::Granted { token: valid_token(token)?, grant: valid_token(grant)? })
            }
            [0, remaining] => Ok(Attempt::Busy { remaining: remaining_time(remaining) }),
            _ => Err(not_ours(name)),
        }
    }

    async fn renew(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError> {
        let mut script = RENEW.key(lock_key(name));
        let Ownership { holder, grant } = ownership;
        script.arg(holder.as_str()).arg(grant.as_u64()).arg(ttl.as_millis());
        match self.run::<i64>(&mut script).await? {
            0 => Ok(None),
            token => valid_token(token).map(Some),
        }
    }

    async fn release(&self, name: &ResourceName, holder: &Holder) -> Result<bool, BackendError> {
        self.run(RELEASE.key(lock_key(name)).arg(holder.as_str())).await
    }

    async fn wait_until_free(&self, _name: &ResourceName, remaining: Option<Duration>) {
        let at_most = remaining.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL);
        sleep(at_most.mul_f64(rand::random_range(0.5..1.0)) + Duration::from_millis(1)).await;
    }

    async fn status(&self, name: &ResourceName) -> Result<Status, BackendError> {
        let mut script = STATUS.key(lock_key(name));
        script.key(counter_key(name));
        let (lock, remaining, last_token): (Option<String>, i64, Option<u64>) =
            self.run(&mut script).await?;
        let held = lock.map(|lock| held(&lock, remaining).ok_or_else(|| not_ours(name)));
        Ok(Status { held: held.transpose()?, last_token })
    }
}

/// Small requests leave at once, and a connection whose other end has gone without a word is given
/// up when it has acknowledged nothing for a while: only then is a new one made.
fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_TIMEOUT);
    settings
}

fn lock_key(name: &ResourceName) -> String {
    format!("fenced:{{{}}}:lock", escaped(name))
}

fn counter_key(name: &ResourceName) -> String {
    format!("fenced:{{{}}}:token", escaped(name))
}

/// The name without what would end the hash tag.
fn escaped(name: &ResourceName) -> String {
    name.as_str().replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

fn unix_millis() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since_epoch.expect("the clock is set after 1970").as_millis();
    millis.try_into().expect("it is not yet the year 584 million")
}

fn held(lock: &str, remaining: i64) -> Option<Held> {
    let [token, _grant, holder] = lock.splitn(3, ' ').collect::<Vec<_>>().try_into().ok()?;
    Some(Held {
        token: token.parse().ok()?,
        holder: holder.parse().ok()?,
        remaining: remaining_time(remaining),
    })
}

fn remaining_time(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

fn valid_token(number: i64) -> Result<Token, BackendError> {
    Token::try_from(number).map_err(|error| BackendError::Rejected(error.into()))
}

fn not_ours(name: &ResourceName) -> BackendError {
    BackendError::Rejected(format!("{} holds no lock of ours", lock_key(name)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_name_share_a_hash_tag_and_differ() {
        let key = |name: &str| lock_key(&name.parse().unwrap());
        assert_eq!(key("invoice-7"), "fenced:{invoice-7}:lock");
        assert_eq!(key("a}{b"), "fenced:{a%7D%7Bb}:lock");
        assert_eq!(key("a%7Db"), "fenced:{a%257Db}:lock");
        assert_eq!(counter_key(&"a/b".parse().unwrap()), "fenced:{a/b}:token");
    }
}
