//! A command that is bound to us: it is killed when we are, even by SIGKILL.
//!
//! Only a process itself can ask the kernel for that (`PR_SET_PDEATHSIG`, see `prctl(2)`), between
//! its fork and its exec. So what is started is this program once more, which asks for it, makes sure
//! that its parent is still there, and becomes the command. Whether it did it tells over a socket that
//! ends with its becoming the command: an exit code of 127 may be the command's own.
//!
//! The kernel goes by the parent *thread*, which here is the main one: the runtime has no other. And
//! it drops the request when a set-user-ID program is executed.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            net::{SocketAddr, UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    path::PathBuf,
    process,
};

use fence::Holder;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::{io::AsyncReadExt, process::Command};

use super::command;
use crate::Failure;

/// The first argument of that step. It is in no help, and nothing completes it.
const STEP: &str = "__become";

/// This very program, even if its file was replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Becomes a command, as a step of `run`.
#[derive(Debug)]
pub(crate) struct Become {
    /// The process that this must be a child of.
    parent: Option<Pid>,
    /// The socket to tell a failure to.
    socket: OsString,
    program: PathBuf,
    /// What the program is told as its name.
    name: OsString,
    arguments: Vec<OsString>,
}

impl Become {
    /// What this process was started to become, if it was.
    pub(crate) fn asked() -> Option<Self> {
        let mut words = env::args_os().skip(1);
        if words.next()? != STEP {
            return None;
        }
        Some(Self {
            parent: words.next()?.to_str()?.parse().ok().and_then(Pid::from_raw),
            socket: words.next()?,
            program: words.next()?.into(),
            name: words.next()?,
            arguments: words.collect(),
        })
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let ours = |error: io::Error| Failure::Unavailable(format!("a step of run: {error}"));
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| ours(error.into()))?;
        // A parent that had gone before sends no signal any more.
        if getppid() != self.parent {
            return Err(Failure::Told(128 + 9));
        }
        let address =
            SocketAddr::from_abstract_name(self.socket.as_encoded_bytes()).map_err(ours)?;
        let mut socket = UnixStream::connect_addr(&address).map_err(ours)?;
        // The socket is closed by a successful exec, which doesn't return.
        let error =
            process::Command::new(&self.program).arg0(&self.name).args(&self.arguments).exec();
        socket.write_all(&error.raw_os_error().unwrap_or(0).to_ne_bytes()).map_err(ours)?;
        Err(Failure::Told(command::refused(&self.program, &error).exit_code()))
    }
}

/// A command that is being started, and its word of whether it was.
#[derive(Debug)]
pub(super) struct Start {
    listener: tokio::net::UnixListener,
    connected: Option<tokio::net::UnixStream>,
    said: Vec<u8>,
}

/// Tells whether there is what the start of a command needs.
pub(super) fn can_be_started() -> Result<(), Failure> {
    let needs = |error| Failure::Unavailable(format!("{THIS_PROGRAM}: {error}; /proc is needed"));
    fs::metadata(THIS_PROGRAM).map(drop).map_err(needs)
}

/// Prepares the start of a command.
pub(super) fn prepare(command: &command::Command) -> io::Result<(Command, Start)> {
    // Nobody can guess it; and who connects is looked at.
    let socket = format!("lock-client-{}", Holder::random().as_str());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&socket)?)?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;

    let mut bound = Command::new(THIS_PROGRAM);
    bound.arg0("lock-client").arg(STEP).arg(getpid().to_string()).arg(socket);
    bound.arg(&command.program).arg(&command.name).args(&command.arguments);
    Ok((bound, Start { listener, connected: None, said: Vec::new() }))
}

impl Start {
    /// Waits until the command runs, or could not be executed, which is the inner error. The outer
    /// one is about the socket.
    ///
    /// # Cancellation safety
    /// If this future is dropped, it may be asked for again.
    pub(super) async fn outcome(&mut self, pid: Pid) -> io::Result<io::Result<()>> {
        let socket = loop {
            if let Some(socket) = &mut self.connected {
                break socket;
            }
            let (socket, _) = self.listener.accept().await?;
            if socket.peer_cred()?.pid() == Some(pid.as_raw_pid()) {
                self.connected = Some(socket);
            }
        };
        while socket.read_buf(&mut self.said).await? > 0 {}
        Ok(match self.said[..].try_into() {
            Ok(error) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
            Err(_) => Ok(()),
        })
    }
}
