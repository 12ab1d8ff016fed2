//! What a rule sees, and what it may decide.

use std::{fmt::Debug, time::Duration};

use super::hold::HeldRequest;

/// Decides what happens to the messages that a proxy carries.
///
/// A proxy asks its rules in the order in which they were added. The first verdict other than
/// [`Verdict::Pass`] counts, and the rules after it don't see the message.
pub trait Rule: Debug + Send {
    /// Decides on a request. Every verdict is possible.
    fn on_request(&mut self, _request: &[u8]) -> Verdict {
        Verdict::Pass
    }

    /// Decides on a message from the server: a reply with its request, or a message that answers no
    /// request, with an empty one. [`Verdict::Delay`] and [`Verdict::Drop`] are possible.
    fn on_reply(&mut self, _request: &[u8], _reply: &[u8]) -> Verdict {
        Verdict::Pass
    }

    /// Receives a request that this rule has held. If it is dropped, the request is lost.
    fn on_held(&mut self, _request: HeldRequest) {}

    /// Whether the rule still waits for the message that it was made for.
    fn is_pending(&self) -> bool {
        false
    }
}

/// What happens to a message.
///
/// Nothing is lost out of the middle of a connection, as with TCP: the messages before a lost one
/// arrive, and the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It arrives.
    Pass,
    /// It arrives after this time, and so do the messages behind it.
    Delay(Duration),
    /// It is lost with its connection.
    Drop,
    /// The request arrives. Its reply arrives after this time.
    DelayReply(Duration),
    /// The request arrives. Its reply is lost with the connection.
    DropReply,
    /// The connection ends. The request arrives this long after that, over another connection.
    Late(Duration),
    /// The request arrives twice, one right after the other, and the client gets the first reply.
    /// This needs [`Framing::Resp`](super::message::Framing::Resp), by which the proxy knows the
    /// second.
    Duplicate,
    /// The request arrives, and once more after this time, over another connection.
    Repeat(Duration),
    /// The connection stands still, and the rule receives the request.
    Hold,
}

/// A long way to the server: each request takes this time.
#[derive(Clone, Copy, Debug)]
pub struct Latency(pub Duration);

impl Rule for Latency {
    fn on_request(&mut self, _: &[u8]) -> Verdict {
        Verdict::Delay(self.0)
    }
}
