//! The rule for one message with a text in it.

use tokio::sync::oneshot;

use super::{
    hold::HeldRequest,
    rule::{Rule, Verdict},
    traffic::contains,
};

/// Strikes the first message with a text in it, and no other.
#[derive(Debug)]
pub(super) struct Trap {
    text: Vec<u8>,
    prey: Prey,
    has_struck: bool,
}

/// The message that a trap is for, and what happens to it.
#[derive(Debug)]
pub(super) enum Prey {
    /// A request with the text is lost.
    Request,
    /// The reply to a request with the text is lost, unless it is an error of Redis.
    ReplyTo,
    /// A message from the server with the text is lost.
    Message,
    /// A request with the text goes to the receiver.
    Held(Option<oneshot::Sender<HeldRequest>>),
}

impl Trap {
    pub(super) fn new(text: &str, prey: Prey) -> Self {
        Self { text: text.into(), prey, has_struck: false }
    }

    fn strike_if(&mut self, is_prey: bool, verdict: Verdict) -> Verdict {
        if self.has_struck || !is_prey {
            return Verdict::Pass;
        }
        self.has_struck = true;
        verdict
    }
}

impl Rule for Trap {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        let verdict = match self.prey {
            Prey::Request => Verdict::Drop,
            Prey::Held(_) => Verdict::Hold,
            Prey::ReplyTo | Prey::Message => return Verdict::Pass,
        };
        self.strike_if(contains(request, &self.text), verdict)
    }

    fn on_reply(&mut self, request: &[u8], reply: &[u8]) -> Verdict {
        let is_prey = match self.prey {
            Prey::ReplyTo => contains(request, &self.text) && !reply.starts_with(b"-"),
            Prey::Message => contains(reply, &self.text),
            Prey::Request | Prey::Held(_) => false,
        };
        self.strike_if(is_prey, Verdict::Drop)
    }

    fn on_held(&mut self, request: HeldRequest) {
        if let Prey::Held(receiver) = &mut self.prey
            && let Some(receiver) = receiver.take()
        {
            // A receiver that was dropped loses the request.
            let _ = receiver.send(request);
        }
    }

    fn is_pending(&self) -> bool {
        !self.has_struck
    }
}
