//! The rules of a proxy, and the requests that came, which all of its connections share.

use std::{
    sync::{Arc, Mutex, MutexGuard, RwLock},
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    time::sleep,
};

use super::{
    hold::HeldRequest,
    message::Framing,
    rule::{Rule, Verdict},
    upstream::Upstream,
};

#[derive(Debug)]
pub(super) struct Traffic {
    upstream: RwLock<Upstream>,
    pub(super) framing: Framing,
    /// Read during each step of a connection, so that none is under way when it is written.
    pub(super) is_cut: RwLock<bool>,
    /// How many requests have yet to be executed over connections of their own.
    pub(super) late: watch::Sender<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Box<dyn Rule>>,
    /// All requests that came, also those that were lost or held back.
    requests: Vec<Vec<u8>>,
}

impl Traffic {
    pub(super) fn new(upstream: Upstream, framing: Framing) -> Self {
        let (is_cut, late, state) = Default::default();
        let upstream = RwLock::new(upstream);
        Self { upstream, framing, is_cut, late, state }
    }

    /// The server that new connections are made to.
    pub(super) fn upstream(&self) -> Upstream {
        self.upstream.read().expect("no writer panics").clone()
    }

    pub(super) fn switch_to(&self, upstream: Upstream) {
        *self.upstream.write().expect("no writer panics") = upstream;
    }

    pub(super) fn add(&self, rule: Box<dyn Rule>) {
        self.state().rules.push(rule);
    }

    pub(super) fn is_any_rule_pending(&self) -> bool {
        self.state().rules.iter().any(|rule| rule.is_pending())
    }

    /// Counts the requests that came with this text in them.
    pub(super) fn count(&self, text: &str) -> usize {
        let state = self.state();
        state.requests.iter().filter(|request| contains(request, text.as_bytes())).count()
    }

    /// Asks the rules about a request, and returns the number of the rule whose verdict counts.
    pub(super) fn on_request(&self, request: &[u8]) -> (usize, Verdict) {
        self.state().requests.push(request.to_vec());
        self.ask(|rule| rule.on_request(request))
    }

    /// Asks the rules about a reply. `request` is empty if it answers none.
    pub(super) fn on_reply(&self, request: &[u8], reply: &[u8]) -> Verdict {
        self.ask(|rule| rule.on_reply(request, reply)).1
    }

    /// Gives a request to the rule that holds it. The receiver is notified when it is delivered.
    pub(super) fn hold(&self, rule: usize, request: Vec<u8>) -> oneshot::Receiver<()> {
        let (held, delivered) = HeldRequest::new(request, self.upstream(), self.framing);
        self.state().rules[rule].on_held(held);
        delivered
    }

    /// Has the server execute a request over a connection of its own, this long after a moment. The
    /// reply is read, and goes nowhere.
    pub(super) fn execute_later(
        self: &Arc<Self>,
        request: Vec<u8>,
        moment: impl Future<Output = ()> + Send + 'static,
        after: Duration,
    ) {
        let traffic = self.clone();
        traffic.late.send_modify(|late| *late += 1);
        tokio::spawn(async move {
            moment.await;
            sleep(after).await;
            // A server that is down doesn't execute it.
            let _ = traffic.upstream().execute(request, traffic.framing).await;
            traffic.late.send_modify(|late| *late -= 1);
        });
    }

    fn ask(&self, mut question: impl FnMut(&mut dyn Rule) -> Verdict) -> (usize, Verdict) {
        let mut state = self.state();
        let mut verdicts = state.rules.iter_mut().map(|rule| question(&mut **rule)).enumerate();
        let first = verdicts.find(|(_, verdict)| *verdict != Verdict::Pass);
        first.unwrap_or((0, Verdict::Pass))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no rule panics")
    }
}

pub(super) fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
