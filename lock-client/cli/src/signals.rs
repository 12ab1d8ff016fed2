//! The signals that the command takes.

use std::{
    collections::VecDeque,
    io,
    os::unix::net,
    time::{Duration, Instant},
};

use rustix::process::{Signal, getpid};
use signal_hook::{
    iterator::{backend::SignalDelivery, exfiltrator::WithOrigin},
    low_level::siginfo::{Cause, Origin, Sent},
};
use tokio::{io::AsyncReadExt, net::UnixStream};

use crate::{
    failure::Failure,
    process::{Process, is_in_foreground},
};

/// The signals that `run` forwards to its child, and that end a wait for a lock.
pub(crate) const FORWARDED: &[Signal] = &[
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
];

/// The signals that end any other command, and the wait for the answer to a release.
pub(crate) const ENDING: &[Signal] = &[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// How long after a request to end the leader of this process's group may repeat it once, and both count
/// as one. `timeout` signals its child, and at once its group, which the child is in.
const REPETITION: Duration = Duration::from_millis(250);

/// Signals that this process takes itself. From `listen` on, none of them ends the process.
///
/// A signal that the process was started to ignore, as `nohup` does with SIGHUP, stays ignored,
/// here and in the child. A signal that the parent had blocked is taken.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    /// The signals that have come, and that nobody has taken.
    waiting: VecDeque<Received>,
    /// The signals that may be of `timeout`, and were taken in the last moment.
    recent: Vec<(Received, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) signal: Signal,
    sender: Sender,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Process,
    /// An outer `run` that ends everything below it, by `sigqueue`.
    OuterRun,
    /// The leader of this process's group.
    Leader,
    /// The kernel, for a terminal or a timer.
    Kernel,
    /// macOS does not show it.
    Unknown,
}

impl Signals {
    /// Takes these signals from now on.
    pub(crate) fn listen(signals: &[Signal]) -> Result<Self, Failure> {
        let pipe = || {
            let (ours, handlers) = net::UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            handlers.set_nonblocking(true)?;
            let none: [i32; 0] = [];
            let ours = UnixStream::from_std(ours)?;
            SignalDelivery::with_pipe(ours, handlers, WithOrigin::default(), none)
        };
        let delivery = pipe().map_err(|error| cannot_listen(&error))?;
        let mut listening = Self { delivery, waiting: VecDeque::new(), recent: Vec::new() };
        listening.add(signals)?;
        Ok(listening)
    }

    /// Takes more signals from now on.
    pub(crate) fn add(&mut self, signals: &[Signal]) -> Result<(), Failure> {
        for signal in signals.iter().filter(|signal| !inheritance::is_ignored(signal.as_raw())) {
            let added = self.delivery.handle().add_signal(signal.as_raw());
            added
                .and_then(|()| inheritance::unblock(signal.as_raw()))
                .map_err(|error| cannot_listen(&error))?;
        }
        Ok(())
    }

    /// Waits for the next signal.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no signal is missed.
    pub(crate) async fn next(&mut self) -> Received {
        loop {
            if let Some(received) = self.take() {
                return received;
            }
            // What a dropped future has read was only a hint to look again.
            let woken = self.delivery.get_read_mut().read(&mut [0; 64]).await;
            woken.expect("the other end is open as long as this one");
        }
    }

    /// Whether a signal has come that nobody has taken.
    pub(crate) fn has_come(&mut self, signal: Signal) -> bool {
        self.waiting.extend(self.delivery.pending().map(|origin| Received::new(&origin)));
        self.waiting.iter().any(|received| received.signal == signal)
    }

    /// Takes a signal that has come already.
    ///
    /// SIGCONT discards SIGTSTP, as in the kernel: nothing shows which of them came first.
    pub(crate) fn take(&mut self) -> Option<Received> {
        if self.has_come(Signal::CONT) {
            self.waiting.retain(|received| received.signal != Signal::TSTP);
        }
        self.recent.retain(|(_, taken)| taken.elapsed() < REPETITION);
        loop {
            let received = self.waiting.pop_front()?;
            if !received.may_be_of_timeout() {
                return Some(received);
            }
            match self.recent.iter().position(|(recent, _)| *recent == received) {
                // A third one is a new request.
                Some(first) => drop(self.recent.swap_remove(first)),
                None => {
                    self.recent.push((received, Instant::now()));
                    return Some(received);
                }
            }
        }
    }
}

impl Received {
    fn new(origin: &Origin) -> Self {
        let signal = Signal::from_named_raw(origin.signal).expect("only such signals are taken");
        let sender = match origin.cause {
            Cause::Sent(Sent::Queue) if signal == Signal::TERM => Sender::OuterRun,
            Cause::Sent(_) => {
                let sender = origin.process.map(|process| process.pid);
                let leader = Process::this().map(|this| this.group);
                if sender == leader { Sender::Leader } else { Sender::Process }
            }
            Cause::Kernel => Sender::Kernel,
            _ => Sender::Unknown,
        };
        Self { signal, sender }
    }

    /// Whether it may be one of the two signals of `timeout`, which mean the same. Any other signal, such
    /// as SIGUSR1, means something each time.
    fn may_be_of_timeout(self) -> bool {
        self.sender == Sender::Leader
            && [Signal::INT, Signal::QUIT, Signal::TERM].contains(&self.signal)
    }

    /// Whether it ends all that this process has started, and not the command alone.
    pub(crate) fn is_for_all(self) -> bool {
        self.sender == Sender::OuterRun
    }

    /// Whether it ends a command that waits for nothing but an answer.
    pub(crate) fn is_ending(self) -> bool {
        ENDING.contains(&self.signal)
    }

    /// Whether it stops the command, or lets it continue.
    pub(crate) fn is_job_control(self) -> bool {
        [Signal::TSTP, Signal::CONT].contains(&self.signal)
    }

    /// Whether it may be of the terminal. For a timer, the kernel sends SIGALRM.
    pub(crate) fn may_be_of_terminal(self) -> bool {
        let of_terminal =
            [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TSTP].contains(&self.signal);
        of_terminal && matches!(self.sender, Sender::Kernel | Sender::Unknown)
    }

    /// Whether all processes of this process's group have received it. If nothing shows the sender,
    /// it is the terminal in the foreground, and a process elsewhere.
    pub(crate) fn went_to_group(self) -> bool {
        let leads_session =
            Process::this().is_some_and(|this| this.session == getpid().as_raw_pid());
        self.went_to_group_if(is_in_foreground(), leads_session)
    }

    fn went_to_group_if(self, is_in_foreground: bool, leads_session: bool) -> bool {
        // When a terminal is gone, its session's leader alone gets SIGHUP, and the foreground group
        // when the leader has ended.
        self.may_be_of_terminal()
            && (self.sender == Sender::Kernel || is_in_foreground)
            && !(self.signal == Signal::HUP && leads_session)
    }
}

fn cannot_listen(error: &io::Error) -> Failure {
    Failure::unavailable(format!("can't listen for signals: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signal_of_the_terminal_has_reached_the_group() {
        for (signal, sender, in_foreground, went_to_group) in [
            (Signal::INT, Sender::Kernel, true, true),
            (Signal::INT, Sender::Process, true, false),
            (Signal::INT, Sender::Leader, true, false),
            (Signal::TERM, Sender::Unknown, true, false),
            (Signal::INT, Sender::Unknown, true, true),
            (Signal::INT, Sender::Unknown, false, false),
        ] {
            let received = Received { signal, sender };
            let found = received.went_to_group_if(in_foreground, false);
            assert_eq!(found, went_to_group, "{received:?}, in the foreground: {in_foreground}");
        }
        let closed = Received { signal: Signal::HUP, sender: Sender::Kernel };
        assert!(!closed.went_to_group_if(true, true), "the leader alone gets it");
    }

    #[tokio::test]
    async fn leader_repeats_a_request_to_end_only_once_and_soon() {
        let mut signals = Signals::listen(&[]).unwrap();
        let [term, usr1] =
            [Signal::TERM, Signal::USR1].map(|signal| Received { signal, sender: Sender::Leader });
        signals.waiting.extend([term, usr1, term, usr1, term]);
        for taken in [Some(term), Some(usr1), Some(usr1), Some(term), None] {
            assert_eq!(signals.take(), taken);
            // However busy the machine is, the time does not pass.
            signals.recent.iter_mut().for_each(|(_, taken)| *taken += Duration::from_secs(60));
        }
        signals.recent[0].1 = Instant::now() - REPETITION;
        signals.waiting.push_back(term);
        assert_eq!(signals.take(), Some(term), "it is too late for a repetition");
    }

    #[tokio::test]
    async fn continuation_discards_a_stop_that_nobody_has_taken() {
        let mut signals = Signals::listen(&[Signal::TSTP, Signal::CONT]).unwrap();
        for (sent, taken) in [
            (&[Signal::TSTP, Signal::CONT][..], Some(Signal::CONT)),
            (&[Signal::TSTP], Some(Signal::TSTP)),
        ] {
            for signal in sent {
                signal_hook::low_level::raise(signal.as_raw()).unwrap();
            }
            assert_eq!(signals.take().map(|received| received.signal), taken);
            assert_eq!(signals.take(), None);
        }
    }
}
