//! Starts a child that the kernel kills when this process dies, even by SIGKILL.
//!
//! A process must ask the kernel for that itself (`PR_SET_PDEATHSIG`, see `prctl(2)`), between fork
//! and exec. So `run` starts this program once more as a launcher. The launcher asks the kernel,
//! checks that its parent still lives, connects to a socket, and executes the command in its own
//! place as soon as its parent lets it. If that fails, it writes the error to the socket; if it
//! succeeds, exec closes the socket. (An exit code of 127 would not show which: it may be the
//! command's own.)
//!
//! The kernel watches the parent *thread*, which here is the main one. It forgets the request when
//! a set-user-ID program is executed.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            net::{SocketAddr, UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    path::PathBuf,
    process::Command,
};

use fence::Holder;
use inherited_sigpipe::inherit_sigpipe;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::io::AsyncReadExt;

use super::{command, witness::THIS_PROGRAM};
use crate::{exit_code, failure::Failure};

/// The first argument of a launcher. It is in no help and no completion.
const LAUNCHER: &str = "__launch";
/// Lets the launcher execute the command.
const GO: &[u8] = b"!";

/// This process as a launcher: it becomes the command.
#[derive(Debug)]
pub(crate) struct Launched {
    /// The process that must be the parent.
    parent: Option<Pid>,
    /// The socket for an error.
    socket: OsString,
    program: PathBuf,
    /// The command's own name, its argument 0.
    name: OsString,
    arguments: Vec<OsString>,
}

impl Launched {
    /// Parses the arguments of a launcher. `None` if this process is none.
    pub(crate) fn parse(arguments: &[OsString]) -> Option<Self> {
        let mut arguments = arguments.iter().skip(1).cloned();
        if arguments.next()? != LAUNCHER {
            return None;
        }
        Some(Self {
            parent: arguments.next()?.to_str()?.parse().ok().and_then(Pid::from_raw),
            socket: arguments.next()?,
            program: arguments.next()?.into(),
            name: arguments.next()?,
            arguments: arguments.collect(),
        })
    }

    /// Executes the command in the place of this process. Returns only if that fails.
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::Unavailable(format!("launching: {error}"));
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| failed(error.into()))?;
        // A parent that died before the request sends no signal.
        if getppid() != self.parent {
            let code = exit_code::ended_by_signal(Signal::KILL.as_raw());
            return Err(Failure::Reported { code });
        }
        let address =
            SocketAddr::from_abstract_name(self.socket.as_encoded_bytes()).map_err(failed)?;
        let mut socket = UnixStream::connect_addr(&address).map_err(failed)?;
        socket.read_exact(&mut [0; GO.len()]).map_err(failed)?;
        let mut command = Command::new(&self.program);
        command.arg0(&self.name).args(&self.arguments);
        inherit_sigpipe(&mut command);
        // A successful exec closes the socket, and does not return.
        let error = command.exec();
        socket.write_all(&error.raw_os_error().unwrap_or(0).to_ne_bytes()).map_err(failed)?;
        Err(Failure::Reported { code: command::exec_error(&self.program, &error).exit_code() })
    }
}

/// A launch that is under way. It learns whether the command was executed.
#[derive(Debug)]
pub(super) struct Launch {
    listener: tokio::net::UnixListener,
    connected: Option<tokio::net::UnixStream>,
    received: Vec<u8>,
}

/// Checks that this program can be started again.
pub(super) fn check_requirements() -> Result<(), Failure> {
    let missing = |error| Failure::Unavailable(format!("{THIS_PROGRAM}: {error}; run needs /proc"));
    fs::metadata(THIS_PROGRAM).map(drop).map_err(missing)
}

/// Prepares the launcher of a command. The leading arguments lead to this command in this program.
pub(super) fn prepare(
    command: &command::Command,
    leading: &[OsString],
) -> io::Result<(Command, Launch)> {
    // The name can't be guessed, and `executed` checks who connects.
    let socket = format!("lock-client-{}", Holder::random().as_str());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&socket)?)?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;

    let mut launcher = Command::new(THIS_PROGRAM);
    launcher.arg0("lock-client").args(leading);
    launcher.arg(LAUNCHER).arg(getpid().to_string()).arg(socket);
    launcher.arg(&command.program).arg(&command.name).args(&command.arguments);
    Ok((launcher, Launch { listener, connected: None, received: Vec::new() }))
}

impl Launch {
    /// Lets the launcher execute the command, and waits until that has succeeded, or failed: the
    /// inner error. The outer error is that of the socket.
    ///
    /// # Cancellation safety
    /// If this future is dropped, it can be called again.
    pub(super) async fn executed(&mut self, pid: Pid) -> io::Result<io::Result<()>> {
        let socket = loop {
            if let Some(socket) = &mut self.connected {
                break socket;
            }
            let (socket, _) = self.listener.accept().await?;
            if socket.peer_cred()?.pid() == Some(pid.as_raw_pid()) {
                // The buffer of a new socket takes this at once.
                rustix::io::write(&socket, GO)?;
                self.connected = Some(socket);
            }
        };
        while socket.read_buf(&mut self.received).await? > 0 {}
        Ok(match self.received[..].try_into() {
            Ok(error) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
            Err(_) => Ok(()),
        })
    }
}
