//! A process that shows which signals went to the whole process group.
//!
//! A terminal, a service manager or `timeout` may signal all processes of a group. The command has
//! then received the signal itself, and must not receive it again from `run`. Nothing else shows
//! that: the kernel does not say to whom a signal was sent. So `run` starts this program once more,
//! as a member of its group that does nothing but remember its signals. It ends with `run`.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net, process::CommandExt},
    },
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::process::Signal;
use signal_hook::flag::register;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

use crate::{
    failure::Failure,
    signals::{FORWARDED, SignalMask, not_ignored},
};

/// The file of this very program, even if it was replaced meanwhile.
#[cfg(target_os = "linux")]
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";

/// The first argument of a witness. It is in no help and no completion.
const WITNESS: &str = "__witness";

/// How long to wait for an answer. A witness that is stopped does not answer, and one on a busy
/// machine answers late.
const PATIENCE: Duration = Duration::from_millis(500);

/// The length of an answer: the number of its question, and the received signals, one bit each.
const ANSWER: usize = 1 + size_of::<u64>();

/// The witness of this process's group.
#[derive(Debug)]
pub(super) struct Witness {
    socket: UnixStream,
    /// The number of the last question.
    question: u8,
    /// What was read of the next answer.
    answer: Vec<u8>,
}

impl Witness {
    /// Starts the witness. The leading arguments lead to this command in this program.
    pub(super) fn start(leading: &[OsString]) -> io::Result<Self> {
        let (ours, theirs) = net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        #[cfg(target_os = "linux")]
        let mut witness = Command::new(THIS_PROGRAM);
        #[cfg(not(target_os = "linux"))]
        let mut witness = Command::new(std::env::current_exe()?);
        // Another name than this program's: a signal to all processes of that name is not the group's.
        witness.arg0("signal-witness").args(leading).arg(WITNESS);
        witness.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        // It is waited for with all other children.
        drop(witness.spawn()?);
        Ok(Self { socket: UnixStream::from_std(ours)?, question: 0, answer: Vec::new() })
    }

    /// Returns the signals that the witness has received since the last call, as a mask. It waits at
    /// most this long.
    pub(super) async fn received(&mut self, at_most: Duration) -> SignalMask {
        // Without an answer, a signal rather comes twice than not at all.
        timeout(PATIENCE.min(at_most), self.ask())
            .await
            .ok()
            .and_then(Result::ok)
            .unwrap_or_default()
    }

    async fn ask(&mut self) -> io::Result<SignalMask> {
        self.question = self.question.wrapping_add(1);
        self.socket.write_u8(self.question).await?;
        loop {
            while self.answer.len() < ANSWER {
                if self.socket.read_buf(&mut self.answer).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let answer: Vec<u8> = self.answer.drain(..ANSWER).collect();
            // Nobody waits any more for the answer to an earlier question.
            if answer[0] == self.question {
                let signals = answer[1..].try_into().expect("the length is right");
                return Ok(SignalMask(u64::from_ne_bytes(signals)));
            }
        }
    }
}

/// Runs this process as a witness, if it was started as one: it answers until `run` has ended.
pub(crate) fn run_as_witness(arguments: &[OsString]) -> Option<Result<(), Failure>> {
    (arguments.get(1)? == WITNESS).then(|| {
        witness().map_err(|error| Failure::Unavailable(format!("witnessing signals: {error}")))
    })
}

fn witness() -> io::Result<()> {
    let mut flags = Vec::new();
    for signal in not_ignored(FORWARDED).into_iter().chain([Signal::CONT]) {
        let flag = Arc::new(AtomicBool::new(false));
        register(signal.as_raw(), flag.clone())?;
        flags.push((signal, flag));
    }
    let mut socket = net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut question = [0];
    while socket.read_exact(&mut question).is_ok() {
        let mut received = SignalMask::default();
        for (signal, flag) in &flags {
            if flag.swap(false, Ordering::Relaxed) {
                received.insert(*signal);
            }
        }
        socket.write_all(&[&question[..], &received.0.to_ne_bytes()].concat())?;
    }
    Ok(())
}
