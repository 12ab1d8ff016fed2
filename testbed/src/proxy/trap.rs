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
    target: Target,
    has_struck: bool,
}

/// The message that a trap waits for, and what happens to it.
#[derive(Debug)]
pub(super) enum Target {
    /// A request with the text is lost.
    Request,
    /// The reply to a request with the text is lost, unless it is an error of Redis.
    Reply,
    /// A message from the server with the text is lost.
    Message,
    /// A request with the text goes to the receiver.
    Held(Option<oneshot::Sender<HeldRequest>>),
}

impl Trap {
    pub(super) fn new(text: &str, target: Target) -> Self {
        Self { text: text.into(), target, has_struck: false }
    }

    fn strike_if(&mut self, is_target: bool, verdict: Verdict) -> Verdict {
        if self.has_struck || !is_target {
            return Verdict::Pass;
        }
        self.has_struck = true;
        verdict
    }
}

impl Rule for Trap {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        let verdict = match self.target {
            Target::Request => Verdict::Drop,
            Target::Held(_) => Verdict::Hold,
            Target::Reply | Target::Message => return Verdict::Pass,
        };
        self.strike_if(contains(request, &self.text), verdict)
    }

    fn on_reply(&mut self, request: &[u8], reply: &[u8]) -> Verdict {
        let is_target = match self.target {
            Target::Reply => contains(request, &self.text) && !reply.starts_with(b"-"),
            Target::Message => contains(reply, &self.text),
            Target::Request | Target::Held(_) => false,
        };
        self.strike_if(is_target, Verdict::Drop)
    }

    fn on_held(&mut self, request: HeldRequest) {
        if let Target::Held(receiver) = &mut self.target
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
