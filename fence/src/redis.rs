//! The fence inside Redis, in `migrations/redis/fence/fenced.lua`.
//!
//! ```no_run
//! # async fn deposit(
//! #     client: redis::Client, account: fence::ResourceName, token: fence::Token,
//! #     holder: fence::Holder,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let mut redis = client.get_multiplexed_async_connection().await?;
//! let fenced = fence::redis::Fenced::new(&account, token, &holder);
//! fenced.claim(&mut redis).await?;
//! let balance: i64 = redis::cmd("GET").arg("{alice}:balance").query_async(&mut redis).await?;
//! fenced.set(&mut redis, "{alice}:balance", balance + 30).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Keys
//! The fence is `fenced:{NAME}:fence`, in which `%`, `{` and `}` of the name stand as `%25`, `%7B` and
//! `%7D`. On Redis Cluster, values have the same `{NAME}` in their keys, so that they share its slot.
//!
//! # What is durable
//! As much as Redis is: a decision outlives a crash only with `appendonly yes` and `appendfsync
//! always`, and the fence outlives memory running short only with `maxmemory-policy noeviction`.

use std::sync::LazyLock;

use ::redis::{RedisError, Script, ScriptInvocation, ToSingleRedisArg, aio::ConnectionLike};

use crate::{ClaimError, Holder, Refusal, ResourceName, Token};

static FENCED: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../migrations/redis/fenced.lua")));

/// A resource, and what is offered for it.
#[derive(Clone, Debug)]
pub struct Fenced {
    fence_key: String,
    token: Token,
    holder: Holder,
}

impl Fenced {
    /// Names a resource, and the token and holder of a lock on it.
    pub fn new(resource: &ResourceName, token: Token, holder: &Holder) -> Self {
        let escaped = resource.as_str().replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        Self { fence_key: format!("fenced:{{{escaped}}}:fence"), token, holder: holder.clone() }
    }

    /// Claims the resource. What is read after it is no older than the claim.
    ///
    /// # Errors
    /// [`ClaimError::Refused`] if the rule refuses. If the answer was lost, the claim may have been
    /// accepted; repeating it does no harm.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the claim may have been accepted, or may still be.
    pub async fn claim(
        &self,
        redis: &mut impl ConnectionLike,
    ) -> Result<(), ClaimError<RedisError>> {
        invoke(self.invocation(), redis).await
    }

    /// Sets a key.
    ///
    /// # Errors
    /// [`ClaimError::Refused`] if the rule refuses. If the answer was lost, the write may have
    /// happened, or may still happen.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the write may have happened, or may still happen.
    pub async fn set(
        &self,
        redis: &mut impl ConnectionLike,
        key: &str,
        value: impl ToSingleRedisArg,
    ) -> Result<(), ClaimError<RedisError>> {
        let mut write = self.invocation();
        write.key(key).arg("SET").arg(value);
        invoke(write, redis).await
    }

    /// Sets fields of a hash: pairs of a field and its value.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    ///
    /// # Cancellation safety
    /// As [`set`](Self::set).
    pub async fn hset(
        &self,
        redis: &mut impl ConnectionLike,
        key: &str,
        fields: &[(impl ToSingleRedisArg, impl ToSingleRedisArg)],
    ) -> Result<(), ClaimError<RedisError>> {
        let mut write = self.invocation();
        write.key(key).arg("HSET");
        for (field, value) in fields {
            write.arg(field).arg(value);
        }
        invoke(write, redis).await
    }

    /// Deletes a key. The fence stays.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    ///
    /// # Cancellation safety
    /// As [`set`](Self::set).
    pub async fn del(
        &self,
        redis: &mut impl ConnectionLike,
        key: &str,
    ) -> Result<(), ClaimError<RedisError>> {
        let mut write = self.invocation();
        write.key(key).arg("DEL");
        invoke(write, redis).await
    }

    fn invocation(&self) -> ScriptInvocation<'static> {
        let mut invocation = FENCED.key(&self.fence_key);
        invocation.arg(self.token.as_u64()).arg(self.holder.as_str());
        invocation
    }
}

async fn invoke(
    script: ScriptInvocation<'_>,
    redis: &mut impl ConnectionLike,
) -> Result<(), ClaimError<RedisError>> {
    let answer: Result<::redis::Value, RedisError> = script.invoke_async(redis).await;
    match answer {
        Ok(_) => Ok(()),
        Err(error) => Err(refusal(&error).map_or(ClaimError::Database(error), Into::into)),
    }
}

fn refusal(error: &RedisError) -> Option<Refusal> {
    Refusal::told(error.code()?, error.detail()?)
}
