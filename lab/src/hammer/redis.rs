//! A Redis under the hammer.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ::redis::{
    AsyncCommands, ConnectionInfo, IntoConnectionInfo, RedisError, Script,
    aio::MultiplexedConnection,
};
use anyhow::{Context, ensure};
use async_trait::async_trait;
use fence::{ClaimError, ResourceName, redis::Fenced};
use tokio::time::sleep;

use super::{
    client::{PAUSE_IN_TRANSACTION_MS, pause},
    database::{Attempt, Connection, Database, Offer, Seen, Variant, Written},
};

/// The fence's own script. It is called with a SET that has the option GET, which returns the
/// replaced state.
const FENCED: &str = include_str!("../../../migrations/redis/fence/fenced.lua");

/// A wrong way: compares the token with that of the value alone.
const ROW_TOKEN: &str = r"
    local token = (redis.call('GET', KEYS[1]) or '0 0 0'):match('%d+$')
    if tonumber(token) > tonumber(ARGV[1]) then
        return redis.error_reply('ZF001 {}')
    end
    return redis.call('SET', KEYS[1], ARGV[2], 'GET')
";

/// A value is the number of its state, the increments and the token.
pub(super) struct Redis {
    info: ConnectionInfo,
    variant: Option<Variant>,
    states: Arc<AtomicU64>,
}

impl Redis {
    pub(super) async fn open(url: &str, variant: Option<Variant>) -> anyhow::Result<Self> {
        ensure!(
            variant != Some(Variant::Exists),
            "Redis has no subqueries; the nearest variant is 'select-then-update'"
        );
        let info = url.into_connection_info().context("the database URL is not a Redis URL")?;
        let redis = Self { info, variant, states: Arc::new(AtomicU64::new(1)) };
        redis.connection().await?;
        Ok(redis)
    }

    async fn connection(&self) -> anyhow::Result<MultiplexedConnection> {
        let connection = testbed::redis::connect(self.info.clone()).await;
        connection.context("can't connect to Redis")
    }
}

fn value_key(resource: &ResourceName) -> String {
    format!("fenced:{{{resource}}}:hammer")
}

fn fence_key(resource: &ResourceName) -> String {
    format!("fenced:{{{resource}}}:fence")
}

#[async_trait]
impl Database for Redis {
    fn isolation_levels(&self) -> &'static [&'static str] {
        &["a script at a time"]
    }

    async fn prepare(&self, _resources: &[ResourceName]) -> anyhow::Result<()> {
        Ok(())
    }

    async fn connect(&self, _isolation: &str) -> anyhow::Result<Box<dyn Connection>> {
        Ok(Box::new(RedisConnection {
            redis: self.connection().await?,
            variant: self.variant,
            states: self.states.clone(),
        }))
    }

    async fn increments(&self, resource: &ResourceName) -> anyhow::Result<u64> {
        let value: Option<String> = self.connection().await?.get(value_key(resource)).await?;
        Ok(parse(value.as_deref())?.increments)
    }

    async fn clear(&self, resources: &[ResourceName]) -> anyhow::Result<()> {
        let mut redis = self.connection().await?;
        for resource in resources {
            let () = redis.del(value_key(resource)).await?;
            let () = redis.del(fence_key(resource)).await?;
        }
        Ok(())
    }
}

struct RedisConnection {
    redis: MultiplexedConnection,
    variant: Option<Variant>,
    states: Arc<AtomicU64>,
}

#[async_trait]
impl Connection for RedisConnection {
    async fn read(&mut self, offer: &Offer) -> anyhow::Result<Attempt<Seen>> {
        if !self.claim(offer).await? {
            return Ok(Attempt::Rejected);
        }
        let value: Option<String> = self.redis.get(value_key(&offer.resource)).await?;
        Ok(Attempt::Committed(parse(value.as_deref())?))
    }

    async fn write(&mut self, offer: &Offer, increments: u64) -> anyhow::Result<Attempt<Written>> {
        let Offer { resource, fence } = offer;
        let (key, token) = (value_key(resource), fence.token.as_u64());
        let state = self.states.fetch_add(1, Ordering::Relaxed);
        let value = format!("{state} {increments} {token}");
        let replaced: Result<Option<String>, RedisError> = match self.variant {
            None => {
                let script = Script::new(FENCED);
                let mut write = script.key(fence_key(resource));
                write.key(key).arg(token).arg(fence.holder.as_str());
                write.arg("SET").arg(value).arg("GET").invoke_async(&mut self.redis).await
            }
            Some(Variant::RowToken) => {
                let script = Script::new(ROW_TOKEN);
                script.key(key).arg(token).arg(value).invoke_async(&mut self.redis).await
            }
            Some(_) => {
                if self.highest_token(resource).await? > token {
                    return Ok(Attempt::Rejected);
                }
                sleep(pause(PAUSE_IN_TRANSACTION_MS)).await;
                let mut set = ::redis::cmd("SET");
                set.arg(key).arg(value).arg("GET").query_async(&mut self.redis).await
            }
        };
        match replaced {
            Ok(replaced) => {
                let replaced = parse(replaced.as_deref())?.state;
                Ok(Attempt::Committed(Written { state, replaced }))
            }
            Err(error) if error.code().is_some_and(|code| code.starts_with("ZF")) => {
                Ok(Attempt::Rejected)
            }
            Err(error) => Err(error).context("Redis failed"),
        }
    }
}

impl RedisConnection {
    async fn claim(&mut self, Offer { resource, fence }: &Offer) -> anyhow::Result<bool> {
        match self.variant {
            None => {
                let fenced = Fenced::new(resource, fence);
                match fenced.claim(&mut self.redis).await {
                    Ok(()) => Ok(true),
                    Err(ClaimError::Rejected { .. }) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
            Some(Variant::RowToken) => Ok(true),
            Some(_) => {
                let token = fence.token.as_u64();
                if self.highest_token(resource).await? > token {
                    return Ok(false);
                }
                let () = self.redis.set(fence_key(resource), token).await?;
                Ok(true)
            }
        }
    }

    async fn highest_token(&mut self, resource: &ResourceName) -> anyhow::Result<u64> {
        let token: Option<u64> = self.redis.get(fence_key(resource)).await?;
        Ok(token.unwrap_or(0))
    }
}

fn parse(value: Option<&str>) -> anyhow::Result<Seen> {
    let Some(value) = value else {
        return Ok(Seen { state: 0, increments: 0 });
    };
    let mut parts = value.split(' ');
    let mut number = || {
        parts
            .next()
            .context("a value is truncated")?
            .parse()
            .context("a value has a part that is not a number")
    };
    Ok(Seen { state: number()?, increments: number()? })
}
