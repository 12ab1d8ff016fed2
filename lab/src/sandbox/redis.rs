//! A Redis as the lock service, with a replica.

use async_trait::async_trait;
use lock_client::{Locks, redis};
use testbed::{Proxy, Redis, Replica, proxy::Upstream};

use super::{
    action::Fault,
    lock_service::{ANSWER_WITHIN, JUMP, LockService, RESOURCE, owner_by},
};
use crate::{
    client::setup::LockSetup,
    record::{Actor, EventKind},
    scenario::stage::{
        redis_lock::{Counter, LAST_TOKEN, RedisLock},
        scene::Scene,
    },
};

/// It answers only when its changes are on disk, so that a restart keeps them.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// A Redis that keeps what it has on disk, and a replica that keeps nothing there. Clients
/// use the primary, until the replica is promoted.
pub(super) struct RedisService {
    primary: RedisLock,
    replica: Replica,
    serves: Serves,
    is_up: bool,
    is_replica_cut: bool,
    /// Only on Linux can a process have a clock of its own.
    has_own_clock: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Serves {
    Primary,
    Replica,
}

impl RedisService {
    /// Starts both. The next tokens are 33 and 34.
    pub(super) async fn start(scene: &Scene) -> anyhow::Result<Self> {
        let has_own_clock = cfg!(target_os = "linux");
        let primary = if has_own_clock {
            Redis::start_with_own_clock(&DURABLE).await?
        } else {
            Redis::start_with(&DURABLE).await?
        };
        let counter = Counter::At(LAST_TOKEN);
        let primary = RedisLock::start_on(primary, RESOURCE, counter, scene).await?;
        let replica = Redis::replica_of(primary.redis()).await?;
        scene.record(Actor::Replica, None, EventKind::InStep);
        let (serves, is_up, is_replica_cut) = (Serves::Primary, true, false);
        Ok(Self { primary, replica, serves, is_up, is_replica_cut, has_own_clock })
    }

    /// The Redis that serves clients.
    fn redis(&self) -> &Redis {
        match self.serves {
            Serves::Primary => self.primary.redis(),
            Serves::Replica => self.replica.redis(),
        }
    }

    fn redis_mut(&mut self) -> &mut Redis {
        match self.serves {
            Serves::Primary => self.primary.redis_mut(),
            Serves::Replica => self.replica.redis_mut(),
        }
    }

    fn stop(&mut self, scene: &Scene) -> anyhow::Result<()> {
        self.redis_mut().process().kill()?;
        self.is_up = false;
        scene.record(self.actor(), None, EventKind::Killed);
        Ok(())
    }

    /// Records that the Redis that serves clients has started again.
    async fn record_restart(&mut self, scene: &Scene) -> anyhow::Result<()> {
        if self.serves == Serves::Replica {
            // It has started as a replica again.
            self.replica.promote().await?;
        }
        self.is_up = true;
        let keys = self.redis().command(&["DBSIZE"]).await?;
        scene.record(self.actor(), None, EventKind::Restarted { keys });
        if keys == 0 {
            scene.record(self.actor(), None, EventKind::CounterFromTheClock);
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl LockService for RedisService {
    fn actor(&self) -> Actor {
        match self.serves {
            Serves::Primary => Actor::Redis,
            Serves::Replica => Actor::Replica,
        }
    }

    fn is_up(&self) -> bool {
        self.is_up
    }

    fn upstreams(&self) -> Vec<Upstream> {
        vec![self.redis().socket().into()]
    }

    fn setup(&self, ways: &[Proxy]) -> LockSetup {
        LockSetup::Redis(ways[0].url("redis"))
    }

    async fn owner(&self) -> anyhow::Result<Option<String>> {
        let redis = redis::Redis::open(&self.redis().url())?.answer_within(ANSWER_WITHIN);
        owner_by(&Locks::new(redis)).await
    }

    fn objection(&self, fault: Fault) -> Option<&'static str> {
        let serves_replica = self.serves == Serves::Replica;
        match fault {
            Fault::Stop | Fault::JumpTheClock if !self.is_up => {
                Some("the lock service does not run")
            }
            Fault::JumpTheClock if serves_replica || !self.has_own_clock => {
                Some("this lock service has the machine's clock, which can't jump")
            }
            Fault::CutOffTheReplica | Fault::PromoteTheReplica if serves_replica => {
                Some("the replica is the lock service already")
            }
            Fault::CutOffTheReplica if self.is_replica_cut => {
                Some("the replica is cut off already")
            }
            _ => None,
        }
    }

    async fn suffer(&mut self, fault: Fault, scene: &Scene) -> anyhow::Result<()> {
        match fault {
            Fault::Stop => self.stop(scene)?,
            Fault::Restart => {
                self.redis_mut().restart().await?;
                self.record_restart(scene).await?;
            }
            Fault::RestartEmpty => {
                self.redis_mut().restart_empty().await?;
                self.record_restart(scene).await?;
            }
            Fault::JumpTheClock => {
                self.redis().jump(JUMP)?;
                let (nodes, seconds) = ("Redis".to_owned(), JUMP.as_secs());
                scene.record(self.actor(), None, EventKind::ClockJumped { nodes, seconds });
            }
            Fault::CutOffTheReplica => {
                self.replica.cut();
                self.is_replica_cut = true;
                scene.record(Actor::Replica, None, EventKind::CutOff);
            }
            Fault::PromoteTheReplica => {
                // A primary that went on beside it would serve the clients that are connected.
                if self.is_up {
                    self.stop(scene)?;
                }
                self.replica.promote().await?;
                (self.serves, self.is_up) = (Serves::Replica, true);
                scene.record(Actor::Replica, None, EventKind::Promoted);
            }
        }
        Ok(())
    }
}
