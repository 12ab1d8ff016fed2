//! The fence inside Redis, 4 or newer: a Lua script that writes a value only if the rule accepts.
//!
//! ```no_run
//! use fence::{Fence, redis::Fenced};
//! use redis::AsyncCommands;
//!
//! async fn withdraw(
//!     client: &redis::Client,
//!     offered: &Fence,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut redis = client.get_multiplexed_async_connection().await?;
//!     let alice = Fenced::new(&"alice".parse()?, offered);
//!     alice.claim(&mut redis).await?;
//!     let balance: i64 = redis.get("{alice}:balance").await?;
//!     alice.set(&mut redis, "{alice}:balance", balance - 30).await?;
//!     Ok(())
//! }
//! ```
//!
//! # Keys
//! The fence of a resource is the hash `fenced:{NAME}:fence`. In its key, `%`, `{` and `}` of the
//! name become `%25`, `%7B` and `%7D`. On Redis Cluster, put the same `{NAME}` into the keys of the
//! values, so that they share the fence's slot. The script rejects the key of a fence as the key of a
//! value.
//!
//! # Durability
//! A decision survives a crash of Redis only with `appendonly yes` and `appendfsync always`. The
//! fence survives a full memory only with `maxmemory-policy noeviction`.

use std::sync::LazyLock;

use ::redis::{RedisError, Script, ScriptInvocation, ToSingleRedisArg, Value, aio::ConnectionLike};

use crate::{
    name::ResourceName,
    rejection::{ClaimError, Rejection},
    rule::Fence,
};

static FENCED: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../migrations/redis/fenced.lua")));

/// A resource, and the token and holder that are offered for it.
#[derive(Clone, Debug)]
pub struct Fenced {
    resource: ResourceName,
    fence_key: String,
    offered: Fence,
}

impl Fenced {
    /// Creates a handle for a resource, with the token and holder of the lock that guards it.
    pub fn new(resource: &ResourceName, offered: &Fence) -> Self {
        let escaped = resource.as_str().replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        Self {
            resource: resource.clone(),
            fence_key: format!("fenced:{{{escaped}}}:fence"),
            offered: offered.clone(),
        }
    }

    /// Claims the resource. Everything read afterwards is at least as new as the claim.
    ///
    /// # Errors
    /// [`ClaimError::Rejected`] if the rule rejects the offer. If the answer was lost, the claim may have been
    /// accepted; it may be repeated.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the claim may have been accepted, or may still be accepted later.
    pub async fn claim(
        &self,
        redis: &mut impl ConnectionLike,
    ) -> Result<(), ClaimError<RedisError>> {
        self.invoke(self.invocation(), redis).await
    }

    /// Sets a key.
    ///
    /// # Errors
    /// [`ClaimError::Rejected`] if the rule rejects the offer. If the answer was lost, the write may have
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
        self.invoke(write, redis).await
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
        self.invoke(write, redis).await
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
        self.invoke(write, redis).await
    }

    fn invocation(&self) -> ScriptInvocation<'static> {
        let mut invocation = FENCED.key(&self.fence_key);
        invocation.arg(self.offered.token.as_u64()).arg(self.offered.holder.as_str());
        invocation
    }

    async fn invoke(
        &self,
        script: ScriptInvocation<'_>,
        redis: &mut impl ConnectionLike,
    ) -> Result<(), ClaimError<RedisError>> {
        let answer: Result<Value, RedisError> = script.invoke_async(redis).await;
        let Err(source) = answer else {
            return Ok(());
        };
        let resource = self.resource.clone();
        Err(match rejection(&source) {
            Some(rejection) => ClaimError::Rejected { resource, rejection },
            None => ClaimError::Database { resource, source },
        })
    }
}

fn rejection(error: &RedisError) -> Option<Rejection> {
    Rejection::parse(error.code()?, error.detail()?)
}
