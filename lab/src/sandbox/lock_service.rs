//! A lock service that breaks down when somebody wants it to.

use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use testbed::{Etcd, Proxy, ZooKeeper, proxy::Upstream};

use super::{
    action::Fault,
    redis::RedisService,
    redlock::RedlockService,
    settings::{Locks, Settings},
    single_server::{LockTable, SingleServer},
};
use crate::{
    client::setup::LockSetup,
    record::{Actor, EventKind},
    scenario::stage::scene::Scene,
};

/// How long a lock service has to answer. On a busy machine, a server that has just started is slow.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How far its clock jumps: longer than any lease lasts.
pub(super) const JUMP: Duration = Duration::from_secs(300);

/// The lock, and the resource that it guards.
pub(super) const RESOURCE: &str = "invoice-7";

/// A lock service in a sandbox. Each client reaches it through proxies of its own.
#[async_trait(?Send)]
pub(super) trait LockService {
    /// Who takes part: the server that serves clients now.
    fn actor(&self) -> Actor;

    /// Whether that server runs.
    fn is_up(&self) -> bool;

    /// Where proxies find that server, or its nodes.
    fn upstreams(&self) -> Vec<Upstream>;

    /// What a client needs that reaches it through these proxies.
    fn setup(&self, ways: &[Proxy]) -> LockSetup;

    /// The owner of the lock, as a client reports it. The server must be up.
    async fn owner(&self) -> anyhow::Result<Option<String>>;

    /// Why something can't happen to it now, if so.
    fn objection(&self, fault: Fault) -> Option<&'static str>;

    /// Lets something happen to it, to which it has no objection, and records that.
    async fn suffer(&mut self, fault: Fault, scene: &Scene) -> anyhow::Result<()>;

    /// Records what has happened by itself.
    fn note(&mut self, _scene: &Scene) {}
}

/// The owner of the lock, as a client reports it.
pub(super) async fn owner_by(locks: &lock_client::Locks) -> anyhow::Result<Option<String>> {
    let status = locks.status(&RESOURCE.parse()?).await.context("can't ask for the owner")?;
    Ok(status.held.map(|held| held.ownership.holder.redacted()))
}

/// Starts a lock service.
pub(super) async fn start(
    settings: Settings,
    scene: &Scene,
) -> anyhow::Result<Box<dyn LockService>> {
    let service: Box<dyn LockService> = match settings.locks {
        Locks::Redis => Box::new(RedisService::start(scene).await?),
        Locks::Etcd => Box::new(SingleServer::<Etcd>::start().await?),
        Locks::ZooKeeper => Box::new(SingleServer::<ZooKeeper>::start().await?),
        Locks::Postgres => Box::new(SingleServer::<LockTable>::start().await?),
        Locks::Redlock => Box::new(RedlockService::start(settings, scene).await?),
    };
    scene.record(service.actor(), None, EventKind::Started);
    Ok(service)
}
