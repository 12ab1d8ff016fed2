//! An etcd as the lock service.

use async_trait::async_trait;
use testbed::{Proxy, proxy::Upstream};

use super::{
    action::Fault,
    lock_service::{LockService, RESOURCE},
};
use crate::{
    client::setup::LockSetup,
    record::{Actor, EventKind},
    scenario::stage::{etcd_lock::EtcdLock, scene::Scene},
};

/// An etcd of one member.
pub(super) struct EtcdService {
    lock: EtcdLock,
    is_up: bool,
}

impl EtcdService {
    pub(super) async fn start(scene: &Scene) -> anyhow::Result<Self> {
        Ok(Self { lock: EtcdLock::start(RESOURCE, scene).await?, is_up: true })
    }
}

#[async_trait(?Send)]
impl LockService for EtcdService {
    fn actor(&self) -> Actor {
        Actor::Etcd
    }

    fn is_up(&self) -> bool {
        self.is_up
    }

    fn upstream(&self) -> Upstream {
        self.lock.etcd().address(0).into()
    }

    fn setup(&self, way: &Proxy) -> LockSetup {
        LockSetup::Etcd(way.url("etcd"))
    }

    async fn owner(&self) -> anyhow::Result<Option<String>> {
        Ok(self.lock.owner().await?.map(|owner| owner.redacted()))
    }

    fn objection(&self, fault: Fault) -> Option<&'static str> {
        match fault {
            Fault::Stop if !self.is_up => Some("the lock service does not run"),
            Fault::Stop | Fault::Restart | Fault::RestartEmpty => None,
            Fault::JumpTheClock => {
                Some("this lock service has the machine's clock, which can't jump")
            }
            Fault::CutOffTheReplica | Fault::PromoteTheReplica => {
                Some("this lock service has no replica")
            }
        }
    }

    async fn suffer(&mut self, fault: Fault, scene: &Scene) -> anyhow::Result<()> {
        let etcd = self.lock.etcd_mut();
        let event = match fault {
            Fault::Restart => {
                etcd.restart().await?;
                let keys = etcd.etcdctl(&["get", "", "--prefix", "--keys-only"]).await?;
                let keys = keys.lines().filter(|line| !line.is_empty()).count();
                EventKind::Restarted { keys: keys.try_into()? }
            }
            Fault::RestartEmpty => {
                etcd.restart_empty().await?;
                EventKind::Restarted { keys: 0 }
            }
            // It objects to all others.
            _ => {
                etcd.process(0).kill()?;
                EventKind::Killed
            }
        };
        self.is_up = event != EventKind::Killed;
        scene.record(Actor::Etcd, None, event);
        Ok(())
    }
}
