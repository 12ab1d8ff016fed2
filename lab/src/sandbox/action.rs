//! What somebody does in a sandbox.

use std::str::FromStr;

use crate::record::Actor;

/// An action. As a text, it says for whom it is, and what it does: `client 1: acquire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The client of this number, from 0, does something.
    Client(usize, Deed),
    /// Something happens to the lock service.
    LockService(Fault),
    /// The sandbox ends.
    End,
}

/// What a client does, or what happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Start,
    Acquire,
    Read,
    /// The client checks whether its lease is over by its own clock.
    Check,
    Write,
    Release,
    Pause,
    Resume,
    Kill,
    CutOff,
    Connect,
    /// Nothing, until its lease is over.
    Expire,
}

/// What happens to a lock service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Stop,
    Restart,
    RestartEmpty,
    JumpTheClock,
    CutOffTheReplica,
    PromoteTheReplica,
}

const DEEDS: [(&str, Deed); 12] = [
    ("start", Deed::Start),
    ("acquire", Deed::Acquire),
    ("read", Deed::Read),
    ("check the lease", Deed::Check),
    ("write", Deed::Write),
    ("release", Deed::Release),
    ("pause", Deed::Pause),
    ("resume", Deed::Resume),
    ("kill", Deed::Kill),
    ("cut off", Deed::CutOff),
    ("connect again", Deed::Connect),
    ("wait until its lease is over", Deed::Expire),
];

const FAULTS: [(&str, Fault); 6] = [
    ("stop", Fault::Stop),
    ("restart", Fault::Restart),
    ("restart empty", Fault::RestartEmpty),
    ("jump the clock", Fault::JumpTheClock),
    ("cut off the replica", Fault::CutOffTheReplica),
    ("promote the replica", Fault::PromoteTheReplica),
];

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{text}` is no action of a sandbox");
        let (who, does) = text.split_once(": ").ok_or_else(unknown)?;
        let action = match who {
            "sandbox" if does == "end" => Some(Self::End),
            "lock service" => find(&FAULTS, does).map(Self::LockService),
            _ => {
                let number = who.strip_prefix("client ").and_then(|number| number.parse().ok());
                let number: usize = number.ok_or_else(unknown)?;
                let most = Actor::CLIENTS.len();
                if !(1..=most).contains(&number) {
                    return Err(format!("there are no more than {most} clients"));
                }
                find(&DEEDS, does).map(|deed| Self::Client(number - 1, deed))
            }
        };
        action.ok_or_else(unknown)
    }
}

fn find<T: Copy>(named: &[(&str, T)], name: &str) -> Option<T> {
    named.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_is_read_from_its_name_and_a_fifth_client_is_rejected() {
        assert_eq!("client 4: cut off".parse(), Ok(Action::Client(3, Deed::CutOff)));
        let restart = Action::LockService(Fault::RestartEmpty);
        assert_eq!("lock service: restart empty".parse(), Ok(restart));
        assert_eq!("sandbox: end".parse(), Ok(Action::End));
        for (wrong, reason) in [
            ("client 5: start", "no more than 4 clients"),
            ("client 0: start", "no more than 4 clients"),
            ("client 1: stop", "no action"),
            ("client x: read", "no action"),
            ("lock service: acquire", "no action"),
            ("acquire", "no action"),
        ] {
            let error = wrong.parse::<Action>().unwrap_err();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }
}
