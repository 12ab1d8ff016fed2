//! Redlock: three nodes, of which a majority grants the lock. What somebody does to this lock service
//! happens to one of them.

use async_trait::async_trait;
use lock_client::{
    Locks,
    redlock::{
        Redlock,
        operator::{Operator, WatchEvent},
    },
};
use testbed::{NodeKind, Proxy, proxy::Upstream};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinSet,
};

use super::{
    action::Fault,
    lock_service::{ANSWER_WITHIN, JUMP, LockService, RESOURCE, owner_by},
    settings::Settings,
};
use crate::{
    client::setup::LockSetup,
    record::{Actor, EventKind},
    scenario::stage::{nodes::Nodes, scene::Scene},
};

const DURABLE: NodeKind<'_> = NodeKind::DURABLE;
/// Only on Linux can a process have a clock of its own.
const LAST: NodeKind<'_> = if cfg!(target_os = "linux") { NodeKind::OwnClock } else { DURABLE };
const KINDS: [NodeKind<'_>; 3] = [DURABLE, DURABLE, LAST];

/// The node to which everything happens, as an index, as an actor and by its letter.
const NODE: usize = 2;
const NODE_ACTOR: Actor = Actor::NODES[NODE];
const NODE_LETTER: &str = "C";

pub(super) struct RedlockService {
    nodes: Nodes,
    /// It only looks at the lock.
    locks: Locks,
    is_node_up: bool,
    /// Says when the node votes again after a restart.
    admitted: UnboundedReceiver<()>,
    /// The watcher, which admits it.
    _watcher: JoinSet<()>,
}

impl RedlockService {
    /// Starts the nodes, and the watcher that admits those that restart. The next tokens are 33 and 34.
    pub(super) async fn start(settings: Settings, scene: &Scene) -> anyhow::Result<Self> {
        let nodes = Nodes::start(RESOURCE, &KINDS, scene).await?;
        nodes.start_cluster(settings.ttl()).await?;
        let urls = nodes.urls();
        let locks = Locks::new(Redlock::open(&urls)?.answer_within(ANSWER_WITHIN));
        let operator = Operator::new(&urls)?;
        let (sender, admitted) = unbounded_channel();
        let mut watcher = JoinSet::new();
        watcher.spawn(async move {
            let mut watcher = operator.watch();
            loop {
                let is_admission = matches!(watcher.next().await, WatchEvent::Admitted { .. });
                if is_admission && sender.send(()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { nodes, locks, is_node_up: true, admitted, _watcher: watcher })
    }
}

#[async_trait(?Send)]
impl LockService for RedlockService {
    fn actor(&self) -> Actor {
        Actor::Nodes
    }

    /// The other two are a majority.
    fn is_up(&self) -> bool {
        true
    }

    fn upstreams(&self) -> Vec<Upstream> {
        (0..KINDS.len()).map(|node| self.nodes.node(node).socket().into()).collect()
    }

    fn setup(&self, ways: &[Proxy]) -> LockSetup {
        LockSetup::Redlock(ways.iter().map(|way| way.url("redis")).collect())
    }

    async fn owner(&self) -> anyhow::Result<Option<String>> {
        owner_by(&self.locks).await
    }

    fn objection(&self, fault: Fault) -> Option<&'static str> {
        match fault {
            Fault::Stop | Fault::JumpTheClock if !self.is_node_up => Some("node C does not run"),
            Fault::JumpTheClock if cfg!(not(target_os = "linux")) => {
                Some("this lock service has the machine's clock, which can't jump")
            }
            Fault::CutOffTheReplica | Fault::PromoteTheReplica => {
                Some("this lock service has no replica")
            }
            _ => None,
        }
    }

    async fn suffer(&mut self, fault: Fault, scene: &Scene) -> anyhow::Result<()> {
        match fault {
            Fault::JumpTheClock => return self.nodes.jump(NODE, JUMP),
            Fault::Restart => self.nodes.node_mut(NODE).restart().await?,
            Fault::RestartEmpty => self.nodes.node_mut(NODE).restart_empty().await?,
            // It objects to all others.
            _ => self.nodes.node_mut(NODE).process().kill()?,
        }
        self.is_node_up = matches!(fault, Fault::Restart | Fault::RestartEmpty);
        if !self.is_node_up {
            scene.record(NODE_ACTOR, None, EventKind::Killed);
            return Ok(());
        }
        let keys = self.nodes.node(NODE).command(&["DBSIZE"]).await?;
        scene.record(NODE_ACTOR, None, EventKind::Restarted { keys });
        let nodes = NODE_LETTER.to_owned();
        scene.record(Actor::Nodes, None, EventKind::Admitting { nodes });
        Ok(())
    }

    fn note(&mut self, scene: &Scene) {
        while self.admitted.try_recv().is_ok() {
            let nodes = NODE_LETTER.to_owned();
            scene.record(Actor::Nodes, None, EventKind::Admitted { nodes });
        }
    }
}
