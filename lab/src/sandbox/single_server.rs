//! A lock service that is one server, without a replica.

mod etcd;
mod table;
mod zookeeper;

use anyhow::Context;
use async_trait::async_trait;
use lock_client::Locks;
use testbed::{Clock, Proxy, proxy::Upstream};

pub(super) use self::table::LockTable;
use super::{
    action::Fault,
    lock_service::{JUMP, LockService, owner_by},
};
use crate::{
    client::setup::LockSetup,
    record::{Actor, EventKind},
    scenario::stage::scene::Scene,
};

/// A server that keeps locks.
#[async_trait(?Send)]
pub(super) trait Server: Sized {
    /// Who takes part.
    const ACTOR: Actor;
    const NAME: &str;

    async fn start() -> anyhow::Result<Self>;

    /// Where a proxy finds it.
    fn upstream(&self) -> Upstream;

    /// What a client needs that reaches it through a proxy.
    fn setup(&self, way: &Proxy) -> LockSetup;

    /// Clients of its locks.
    fn locks(&self) -> anyhow::Result<Locks>;

    async fn kill(&mut self) -> anyhow::Result<()>;

    /// Starts it after a kill, with what it has on disk. Returns how many keys, nodes or rows it has.
    async fn start_again(&mut self) -> anyhow::Result<u64>;

    /// Starts it after a kill, without any data.
    async fn start_empty(&mut self) -> anyhow::Result<()>;

    /// Its clock, if that is its own.
    fn clock(&self) -> Option<Clock> {
        None
    }
}

/// A lock service that is one server.
pub(super) struct SingleServer<S> {
    server: S,
    /// They only look at the lock.
    locks: Locks,
    is_up: bool,
}

impl<S: Server> SingleServer<S> {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let server = S::start().await?;
        let locks = server.locks()?;
        Ok(Self { server, locks, is_up: true })
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        if self.is_up {
            self.server.kill().await?;
            self.is_up = false;
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl<S: Server> LockService for SingleServer<S> {
    fn actor(&self) -> Actor {
        S::ACTOR
    }

    fn is_up(&self) -> bool {
        self.is_up
    }

    fn upstreams(&self) -> Vec<Upstream> {
        vec![self.server.upstream()]
    }

    fn setup(&self, ways: &[Proxy]) -> LockSetup {
        self.server.setup(&ways[0])
    }

    async fn owner(&self) -> anyhow::Result<Option<String>> {
        owner_by(&self.locks).await
    }

    fn objection(&self, fault: Fault) -> Option<&'static str> {
        match fault {
            Fault::Stop | Fault::JumpTheClock if !self.is_up => {
                Some("the lock service does not run")
            }
            Fault::JumpTheClock if self.server.clock().is_none() => {
                Some("this lock service has the machine's clock, which can't jump")
            }
            Fault::CutOffTheReplica | Fault::PromoteTheReplica => {
                Some("this lock service has no replica")
            }
            _ => None,
        }
    }

    async fn suffer(&mut self, fault: Fault, scene: &Scene) -> anyhow::Result<()> {
        if fault == Fault::JumpTheClock {
            self.server.clock().context("it has no clock of its own")?.jump(JUMP)?;
            let (nodes, seconds) = (S::NAME.to_owned(), JUMP.as_secs());
            scene.record(S::ACTOR, None, EventKind::ClockJumped { nodes, seconds });
            return Ok(());
        }
        self.kill().await?;
        let event = match fault {
            Fault::Restart => EventKind::Restarted { keys: self.server.start_again().await? },
            Fault::RestartEmpty => {
                self.server.start_empty().await?;
                EventKind::Restarted { keys: 0 }
            }
            // It objects to all others.
            _ => EventKind::Killed,
        };
        self.is_up = event != EventKind::Killed;
        scene.record(S::ACTOR, None, event);
        Ok(())
    }
}
