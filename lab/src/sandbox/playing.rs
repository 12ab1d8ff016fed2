//! A sandbox that is played: one action after the other, and leases that expire meanwhile.

use std::time::{Duration, Instant};

use anyhow::bail;
use futures_util::future::try_join_all;
use testbed::Proxy;
use tokio::{
    select,
    sync::{mpsc::UnboundedReceiver, oneshot},
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use super::{
    DESCRIPTION,
    action::{Action, Deed, Fault},
    lock_service::{self, LockService, RESOURCE},
    seat::{Seat, State},
    settings::Settings,
    store::Store,
};
use crate::{
    client::command::{Command, Terms},
    record::{Actor, EventKind, Outcomes, Recorder, RunRecord},
    scenario::stage::{
        client::write,
        findings::{lease_over, most_holders_at_once},
        scene::Scene,
        stale_writes,
    },
};

/// How many clients there are from the beginning.
const CLIENTS: usize = 2;
/// How often leases are checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// How long such a check waits for the lock service. Actions wait meanwhile.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);

/// A requested action, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) action: Action,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// The answer to a requested action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was carried out, and its events are recorded.
    Done,
    /// It was not, for this reason.
    Rejected(RejectedAction),
}

/// Why a requested action is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RejectedAction {
    /// The key of the page's text.
    pub(crate) key: &'static str,
    /// The reason in English.
    pub(crate) detail: String,
}

/// Starts a sandbox, takes these steps and says so, and carries out what is requested until it ends.
///
/// # Errors
/// If a server or a client fails by itself, or one of the steps can't be taken.
///
/// # Cancellation safety
/// If it is dropped, its processes end.
pub(crate) async fn play(
    settings: Settings,
    steps: &[Action],
    recorder: Recorder,
    ready: impl FnOnce(),
    mut requests: UnboundedReceiver<Request>,
) -> anyhow::Result<RunRecord> {
    let mut sandbox = Sandbox::start(settings, recorder).await?;
    for step in steps {
        if let Some(reason) = sandbox.objection(*step) {
            bail!("this can't be done again: {reason}");
        }
        sandbox.carry_out(*step).await?;
    }
    ready();
    let mut checks = interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        select! {
            request = requests.recv() => {
                let Some(Request { action, answer }) = request else { break };
                let outcome = match sandbox.objection(action) {
                    Some(detail) => Answer::Rejected(RejectedAction { key: "not-now", detail }),
                    None => {
                        sandbox.carry_out(action).await?;
                        Answer::Done
                    }
                };
                // The page that asked may be gone.
                let _ = answer.send(outcome);
                if action == Action::End {
                    break;
                }
            }
            _ = checks.tick() => sandbox.check_leases(Cause::Time).await?,
        }
    }
    Ok(sandbox.finish())
}

struct Sandbox {
    scene: Scene,
    settings: Settings,
    service: Box<dyn LockService>,
    store: Store,
    seats: Vec<Seat>,
    /// How many writes were sent. Each value has its number.
    writes: u64,
}

/// Why leases are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Time has passed.
    Time,
    /// Something happened to the lock service, which may have forgotten them.
    Fault,
}

impl Sandbox {
    async fn start(settings: Settings, recorder: Recorder) -> anyhow::Result<Self> {
        let world = settings.world();
        let mut scene = Scene::new(world, recorder, 1);
        scene.enter(world);
        let service = lock_service::start(settings, &scene).await?;
        let store = Store::start(settings.store, &mut scene).await?;
        let (seats, writes) = (Vec::new(), 0);
        let mut sandbox = Self { scene, settings, service, store, seats, writes };
        for _ in 0..CLIENTS {
            sandbox.start_client().await?;
        }
        Ok(sandbox)
    }

    /// Why an action can't be carried out now, if so.
    fn objection(&self, action: Action) -> Option<String> {
        match action {
            Action::Client(number, Deed::Start) if number == self.seats.len() => None,
            Action::Client(number, deed) => match self.seats.get(number) {
                Some(seat) => seat.objection(deed),
                None => Some(format!("{} has not started", Actor::CLIENTS[number].title())),
            },
            Action::LockService(fault) => self.service.objection(fault).map(str::to_owned),
            Action::End => None,
        }
    }

    async fn carry_out(&mut self, action: Action) -> anyhow::Result<()> {
        self.service.note(&self.scene);
        match action {
            Action::Client(number, deed) => self.drive(number, deed).await,
            Action::LockService(fault) => self.break_down(fault).await,
            Action::End => Ok(()),
        }
    }

    async fn start_client(&mut self) -> anyhow::Result<()> {
        let actor = Actor::CLIENTS[self.seats.len()];
        let ways = try_join_all(self.service.upstreams().into_iter().map(Proxy::start)).await?;
        let (lock, store) = (self.service.setup(&ways), self.store.setup(self.settings));
        let client = self.scene.client(actor, RESOURCE, lock, store)?;
        self.seats.push(Seat::new(client, ways));
        self.scene.record(actor, None, EventKind::Started);
        Ok(())
    }

    /// Lets a client do something.
    async fn drive(&mut self, number: usize, deed: Deed) -> anyhow::Result<()> {
        let command = match deed {
            Deed::Start => return self.start_client().await,
            Deed::Expire => return self.expire(number).await,
            Deed::Acquire => Command::Acquire(Terms::new(self.settings.ttl())),
            Deed::Read => Command::Read,
            Deed::Check => Command::CheckLease,
            Deed::Write => {
                self.writes += 1;
                write(&format!("{}: {}", self.writes, self.seats[number].actor().title()))
            }
            Deed::Release => Command::Release,
            Deed::Pause | Deed::Resume | Deed::Kill | Deed::CutOff | Deed::Connect => {
                return self.trouble(number, deed).await;
            }
        };
        self.seats[number].client.send(&command)?;
        // Each of these commands has one report.
        let report = self.seats[number].client.report().await?;
        if let EventKind::Acquired { .. } = report.kind {
            self.end_earlier_leases();
        }
        let seat = &mut self.seats[number];
        let event = seat.client.record_report(report);
        seat.note(&event);
        Ok(())
    }

    /// Does something to a client's process, or to its way to the lock service.
    async fn trouble(&mut self, number: usize, deed: Deed) -> anyhow::Result<()> {
        let service = self.service.actor();
        let seat = &mut self.seats[number];
        let client = seat.actor();
        match deed {
            Deed::Pause => {
                seat.client.pause().await?;
                seat.state = State::Paused;
            }
            Deed::Resume => {
                seat.client.resume()?;
                seat.state = State::Running;
            }
            Deed::Kill => {
                seat.client.kill()?;
                seat.state = State::Killed;
            }
            Deed::CutOff => {
                seat.ways.iter().for_each(Proxy::cut);
                seat.is_cut_off = true;
                self.scene.record(service, None, EventKind::ClientCutOff { client });
            }
            _ => {
                seat.ways.iter().for_each(Proxy::mend);
                seat.is_cut_off = false;
                self.scene.record(service, None, EventKind::ClientConnected { client });
            }
        }
        Ok(())
    }

    /// Waits until a client's lease is over. While the lock service is down, that is by the client's clock.
    async fn expire(&mut self, number: usize) -> anyhow::Result<()> {
        while let Some(lease) = &self.seats[number].lease
            && (self.service.is_up() || Instant::now() < lease.until)
        {
            sleep(CHECK_EVERY).await;
            self.check_leases(Cause::Time).await?;
        }
        Ok(())
    }

    /// Lets something happen to the lock service.
    async fn break_down(&mut self, fault: Fault) -> anyhow::Result<()> {
        self.service.suffer(fault, &self.scene).await?;
        for seat in &self.seats {
            for (way, upstream) in seat.ways.iter().zip(self.service.upstreams()) {
                way.switch_to(upstream);
            }
        }
        match fault {
            Fault::CutOffTheReplica => Ok(()),
            _ => self.check_leases(Cause::Fault).await,
        }
    }

    /// Records what has happened by itself: which leases are over, and after a fault, which of them the lock
    /// service has kept.
    async fn check_leases(&mut self, cause: Cause) -> anyhow::Result<()> {
        self.service.note(&self.scene);
        let (now, service) = (Instant::now(), self.service.actor());
        let asks = self
            .seats
            .iter()
            .filter_map(|seat| seat.lease.as_ref())
            .any(|lease| !lease.is_forgotten && (cause == Cause::Fault || now >= lease.until));
        // Without an answer, leases that the lock service has are not over.
        let owner = match cause {
            _ if !asks || !self.service.is_up() => None,
            Cause::Fault => Some(self.service.owner().await?),
            // A slow answer ends nothing: the lock service is asked again soon.
            Cause::Time => {
                timeout(ANSWER_WITHIN, self.service.owner()).await.ok().and_then(Result::ok)
            }
        };
        for seat in &mut self.seats {
            let whose = seat.actor();
            let Some(lease) = &mut seat.lease else { continue };
            let (token, is_over) = (lease.token, now >= lease.until);
            let kept = owner.as_ref().map(|owner| *owner == lease.holder);
            let (actor, event) = match (lease.is_forgotten, kept, is_over) {
                // The lock service knows nothing of it. Its client's clock ends it.
                (true, _, true) => (whose, EventKind::LeaseExpired { whose }),
                (false, Some(false), true) => (service, EventKind::LeaseExpired { whose }),
                (false, Some(false), false) => (service, EventKind::LockForgotten { whose }),
                (false, Some(true), _) if cause == Cause::Fault => {
                    (service, EventKind::LockKept { whose })
                }
                _ => continue,
            };
            match event {
                EventKind::LockForgotten { .. } => lease.is_forgotten = true,
                EventKind::LeaseExpired { .. } => seat.lease = None,
                _ => {}
            }
            self.scene.record(actor, token, event);
        }
        Ok(())
    }

    /// Records that all leases are over that the lock service had: it has granted the lock anew.
    fn end_earlier_leases(&mut self) {
        for seat in &mut self.seats {
            if let Some(lease) = seat.lease.take_if(|lease| !lease.is_forgotten) {
                let expired = EventKind::LeaseExpired { whose: seat.actor() };
                self.scene.record(self.service.actor(), lease.token, expired);
            }
        }
    }

    /// The record of all that happened.
    fn finish(self) -> RunRecord {
        let recorder = &self.scene.recorder;
        let events = recorder.events();
        let last = events.iter().rev().find_map(|event| match &event.kind {
            EventKind::Written { content, .. } => Some((content.value.clone(), event.token)),
            _ => None,
        });
        let (value, token) = last.unwrap_or_default();
        let outcome = stale_writes::outcome(&events, value, token)
            .with("holders_at_once", most_holders_at_once(&events, lease_over));
        let outcome = Outcomes::from([(self.scene.world.name.to_owned(), outcome)]);
        let (scenario, events) = (DESCRIPTION.name.to_owned(), recorder.take_events());
        RunRecord { scenario, holds: true, events, outcome }
    }
}
