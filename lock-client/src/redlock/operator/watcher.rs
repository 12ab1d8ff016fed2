//! The takeovers of seats, by an operator for one server or by a service for all.
//!
//! [`Takeover`] decides the steps. This carries its requests, and reports what people should know. A
//! takeover needs no decision of a person as long as a majority of the members votes: together they know
//! every issued token.
//!
//! Several services may run at once: see `courtesy.rs`.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt, mem,
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{
    Operator,
    counters::{self, CopiedCounters},
    courtesy::Courtesy,
    error::OperatorError,
    report::WatchEvent,
    servers::Sight,
};
use crate::{
    Moment,
    redlock::{
        machines::takeover::{Answer, Command, Takeover},
        node_urls::NodeUrl,
    },
};

/// The time between two looks at the nodes.
const INTERVAL: Duration = Duration::from_secs(1);

/// A watcher of all nodes of a cluster, which [admits](super::Operator::watch) those that restart.
#[must_use = "it watches while `next` is awaited"]
pub struct Watcher<'a> {
    pub(super) operator: &'a Operator,
    /// A server that takes a seat, and need not be named.
    candidate: Option<NodeUrl>,
    /// The address of the seat that it takes, and its own. Only a seat that moves has two.
    pub(super) relocation: Option<[String; 2]>,
    /// The takeovers in this cluster; `None` until it is known.
    takeover: Option<(String, Takeover)>,
    /// What the last look has seen.
    pub(super) sight: Sight,
    waits: Vec<Wait>,
    /// What was copied to each process.
    pub(super) copied: HashMap<String, CopiedCounters>,
    /// What went wrong with each process in this round.
    pub(super) failures: HashMap<String, String>,
    /// What was reported last of each node that has no vote.
    pub(super) left_alone: HashMap<String, String>,
    /// The nodes that did not answer the last look.
    pub(super) silent: HashSet<String>,
    pub(super) lacks_majority: bool,
    /// The lock of the service that works; `None` for a takeover that a person has asked for.
    courtesy: Option<Courtesy>,
    stands_by: bool,
    /// What was seen and not yet returned.
    pub(super) events: VecDeque<WatchEvent>,
    /// How long to rest before the next round; `None` during a round.
    rest: Option<Duration>,
    has_rested: bool,
}

struct Wait {
    process: String,
    since: u64,
    until: Moment,
    /// Whether the machine knows that it is over.
    has_ended: bool,
}

/// What became of a command.
enum Outcome {
    /// It is no request.
    Nothing,
    State(Answer),
    /// The sources from which everything has arrived, and what went wrong with the others.
    Copied {
        arrived: Vec<String>,
        copied: CopiedCounters,
        failures: Vec<String>,
    },
}

impl fmt::Debug for Watcher<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("servers", &self.operator).finish_non_exhaustive()
    }
}

impl<'a> Watcher<'a> {
    pub(super) fn new(operator: &'a Operator) -> Self {
        Self { courtesy: Some(Courtesy::new(operator)), ..Self::with(operator, None, None) }
    }

    fn with(
        operator: &'a Operator,
        relocation: Option<[String; 2]>,
        candidate: Option<NodeUrl>,
    ) -> Self {
        Self {
            operator,
            candidate,
            relocation,
            takeover: None,
            sight: Sight::default(),
            waits: Vec::new(),
            copied: HashMap::new(),
            failures: HashMap::new(),
            left_alone: HashMap::new(),
            silent: HashSet::new(),
            lacks_majority: false,
            courtesy: None,
            stands_by: false,
            events: VecDeque::new(),
            rest: Some(Duration::ZERO),
            has_rested: false,
        }
    }

    /// Watches the nodes until something happens, and returns it.
    ///
    /// # Cancellation safety
    /// If this future is dropped, an admission may have been its last step, and is not reported.
    pub async fn next(&mut self) -> WatchEvent {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            if let Some(pause) = self.rest.take() {
                sleep(pause).await;
                if !self.works().await {
                    self.rest = Some(INTERVAL);
                    continue;
                }
            }
            if self.step().await {
                self.report();
                self.rest = Some(self.until_next_wait());
            }
        }
    }

    /// Whether this service works now, because no other one does. A service that stands by knows nothing
    /// of the other's waits. So it reports nothing else.
    async fn works(&mut self) -> bool {
        if self.courtesy.as_ref().is_none_or(Courtesy::is_held) {
            return true;
        }
        let sight = self.look().await;
        let Some(courtesy) = &mut self.courtesy else { return true };
        let works = courtesy.is_ours(&sight).await;
        if !works && !mem::replace(&mut self.stands_by, true) {
            self.events.push_back(WatchEvent::StandsBy);
        }
        self.stands_by = !works;
        works
    }

    /// Takes the seat of a member over, for the process at this address. Returns what was copied.
    pub(super) async fn admit(
        operator: &'a Operator,
        node: NodeUrl,
        instead_of: Option<NodeUrl>,
        mut report: impl FnMut(WatchEvent),
    ) -> Result<CopiedCounters, OperatorError> {
        let seat = instead_of.as_ref().unwrap_or(&node).address.clone();
        let relocation = Some([seat, node.address.clone()]);
        let mut watcher = Self::with(operator, relocation, Some(node));
        loop {
            let has_rested = watcher.step().await;
            watcher.check_can_take_seat()?;
            watcher.events.drain(..).for_each(&mut report);
            if !has_rested {
                continue;
            }
            if let Some(outcome) = watcher.outcome() {
                return outcome;
            }
            sleep(watcher.until_next_wait()).await;
        }
    }

    /// Takes one step of a round. Returns whether there is nothing more to do in it.
    async fn step(&mut self) -> bool {
        if mem::take(&mut self.has_rested) {
            self.failures.clear();
        }
        let Some((_, takeover)) = &mut self.takeover else {
            self.sight = self.look().await;
            self.begin();
            return self.takeover.is_none();
        };
        for wait in self.waits.iter_mut().filter(|wait| wait.until.has_passed()) {
            takeover.end_wait(&wait.process, wait.since);
            wait.has_ended = true;
        }
        let commands = takeover.next();
        // A wait counts from here, before anything is awaited.
        for command in &commands {
            if let Command::Wait { process, since, max_ttl_ms } = command {
                self.begin_wait(process, *since, Duration::from_millis(*max_ttl_ms));
            }
        }
        if commands == [Command::Rest] {
            self.has_rested = true;
            return true;
        }
        if commands.contains(&Command::Look) {
            self.sight = self.look().await;
            self.begin();
            self.observe();
            return false;
        }
        let outcomes = join_all(commands.iter().map(|command| self.carry(command))).await;
        for (command, outcome) in commands.iter().zip(outcomes) {
            self.note(command, outcome);
        }
        false
    }

    /// Begins the takeovers of the cluster that is seen, unless they have begun.
    fn begin(&mut self) {
        let Some(cluster) = self.sight.cluster.clone() else { return };
        if self.takeover.as_ref().is_some_and(|(known, _)| *known == cluster) {
            return;
        }
        let takeover = match &self.relocation {
            Some([from, to]) => Takeover::relocating(cluster.clone(), from.clone(), to.clone()),
            None => Takeover::new(cluster.clone()),
        };
        let known = self.takeover.replace((cluster, takeover));
        // The nodes of another cluster have a lock of their own.
        if let (Some(_), Some(courtesy)) = (known, &mut self.courtesy) {
            *courtesy = Courtesy::new(self.operator);
        }
        self.waits.clear();
    }

    async fn look(&self) -> Sight {
        let known = self.takeover.as_ref().map(|(cluster, _)| cluster.as_str());
        self.operator.look(self.candidate.as_slice(), known).await
    }

    /// Reports the answers to the machine, without those of other clusters. A process may answer at
    /// several addresses: the machine keeps the last one, which is that of a member, if there is one.
    fn observe(&mut self) {
        let Some((cluster, takeover)) = &mut self.takeover else { return };
        let newest = self.sight.newest().map(|(roster, _)| roster);
        let is_member = |address: &String| {
            newest.is_some_and(|roster| roster.seats.iter().any(|seat| seat.address == *address))
        };
        let peers = self.sight.peers.iter();
        let mut own: Vec<_> =
            peers.filter(|peer| peer.cluster().is_none_or(|own| own == cluster)).collect();
        own.sort_by_key(|peer| is_member(&peer.address));
        for peer in own {
            takeover.observe(peer.answer());
        }
    }

    /// Carries a request.
    async fn carry(&self, command: &Command) -> Result<Outcome, String> {
        let peer = |process: &str| {
            self.sight.with(process).ok_or_else(|| "it does not answer any more".to_owned())
        };
        let state = match command {
            Command::Prepare { process, roster } => peer(process)?.prepare(roster).await,
            Command::Close { process, from, to } => peer(process)?.close(from, to).await,
            Command::Admit { process, roster } => peer(process)?.admit(roster).await,
            Command::Copy { to, from, .. } => return Ok(self.copy(to, from).await),
            Command::Look | Command::Wait { .. } | Command::Rest => return Ok(Outcome::Nothing),
        };
        state.map(Outcome::State).map_err(|error| error.reason)
    }

    /// Copies the counters of these processes.
    async fn copy(&self, to: &str, from: &[String]) -> Outcome {
        let (mut arrived, mut failures) = (Vec::new(), Vec::new());
        let mut copied = CopiedCounters::default();
        if let Some(target) = self.sight.with(to) {
            for source in from.iter().filter_map(|process| self.sight.with(process)) {
                match counters::copy(source, target, 0, &mut copied).await {
                    Ok(()) => arrived.push(source.process.clone()),
                    Err(error) => failures.push(error.to_string()),
                }
            }
        }
        Outcome::Copied { arrived, copied, failures }
    }

    /// Reports the outcome of a command to the machine.
    fn note(&mut self, command: &Command, outcome: Result<Outcome, String>) {
        let Some((_, takeover)) = &mut self.takeover else { return };
        match (command, outcome) {
            (
                Command::Copy { to, roster, .. },
                Ok(Outcome::Copied { arrived, copied, failures }),
            ) => {
                if !failures.is_empty() {
                    let failure = format!("can't copy its counters: {}", failures.join("; "));
                    self.failures.insert(to.clone(), failure);
                }
                self.copied.insert(to.clone(), copied);
                takeover.observe_copy(to, arrived, roster);
            }
            (_, Ok(Outcome::State(answer))) => {
                if matches!(command, Command::Admit { .. }) && answer.is_admitted {
                    let copied = self.copied.get(&answer.process).cloned().unwrap_or_default();
                    let node = answer.address.clone();
                    self.left_alone.remove(&node);
                    self.waits.retain(|wait| wait.process != answer.process);
                    self.events.push_back(WatchEvent::Admitted { node, copied });
                }
                takeover.observe_result(command, Some(answer));
            }
            (
                Command::Prepare { process, .. }
                | Command::Close { process, .. }
                | Command::Admit { process, .. },
                Err(failure),
            ) => {
                self.failures.insert(process.clone(), failure);
                takeover.observe_result(command, None);
            }
            _ => {}
        }
    }

    fn begin_wait(&mut self, process: &str, since: u64, longest: Duration) {
        let remaining = longest + longest / 100 + Duration::from_millis(2);
        let until = Moment::now() + remaining;
        self.waits.retain(|wait| wait.process != process);
        self.waits.push(Wait { process: process.to_owned(), since, until, has_ended: false });
        let node = self.sight.with(process).map_or_else(String::new, |peer| peer.address.clone());
        self.left_alone.remove(&node);
        self.events.push_back(WatchEvent::Waiting { node, remaining });
    }

    pub(super) fn is_waiting(&self, process: &str) -> bool {
        self.waits.iter().any(|wait| wait.process == process && !wait.has_ended)
    }

    /// Whether any process waits, after which another may take a seat.
    pub(super) fn is_waiting_for_any(&self) -> bool {
        self.waits.iter().any(|wait| !wait.has_ended)
    }

    /// How long to rest until there may be something to do.
    fn until_next_wait(&self) -> Duration {
        let waits = self.waits.iter().filter(|wait| !wait.has_ended);
        waits.map(|wait| wait.until.remaining()).min().map_or(INTERVAL, |wait| wait.min(INTERVAL))
    }
}
