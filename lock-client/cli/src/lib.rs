//! The `lock-client` command: its arguments, and what its exit codes mean.
//!
//! Every step is an event on stdout, a JSON object on a line of its own; errors are on
//! stderr.

mod acquire;
mod completions;
mod doctor;
mod events;
mod get;
mod handle;
mod lock_service;
mod man;
mod node;
mod put;
mod release;
mod renew;
mod run;
mod signals;
mod status;
mod terms;
mod voice;
mod watch;

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::ExitCode,
    str::FromStr,
};

use clap::{
    CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use fence::ResourceName;
use signal_hook::{consts::SIGINT, low_level::emulate_default_handler};

use self::lock_service::LockService;
use lock_client::{
    AcquireError, LockServiceError, RenewError, Ttl,
    storage::{FencedError, Storage, StorageError},
};

/// Locks that hand out fencing tokens.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes:
   0  done; of run: what its command exits with
   1  doctor: a token could be lost, or it could not be seen whether one could
  64  the command was not used rightly
  66  there is nothing to get
  69  Redis or the storage can't be reached, or can't do what it is asked
  74  what is to be told can't be printed
  75  somebody else holds the lock
  79  the lease was lost
  80  the storage refused the token
 126  the command of run can't be executed
 127  there is no such command
 128+n  signal n ended the command of run, or the wait for the lock";

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a command under a lock, with its token
    #[command(after_long_help = run::HELP)]
    Run(Box<run::Run>),
    /// Writes a value under a lock, with its token
    ///
    /// Acquires the lock of the resource's name, if it is free, reads the value (which claims the
    /// resource for the token), checks the lease, writes, and releases. SIGINT and SIGTERM end it, and release the lock;
    /// a write that is under way then may land all the same.
    Put(put::Put),
    /// Prints what a resource's value is
    Get(get::Get),
    /// Takes a lock, and prints a handle to go on with
    #[command(after_long_help = acquire::HELP)]
    Acquire(acquire::Acquire),
    /// Sets the full ttl of a lock again, and prints its new handle
    Renew(renew::Renew),
    /// Frees a lock by its handle
    Release(release::Release),
    /// Shows who holds a lock
    Status(status::StatusOf),
    /// Tells whether a token could be lost by this Redis, and what cures it
    Doctor(doctor::Doctor),
    /// Starts a cluster of independent Redis nodes (Redlock), and looks after it
    #[command(subcommand)]
    Node(node::Node),
    /// Prints what a lock is, again whenever that changes
    #[command(after_long_help = watch::HELP)]
    Watch(watch::Watch),
    /// Prints a script that completes this command in a shell
    Completions(completions::Completions),
    /// Prints the manual page
    Man(man::Man),
}

/// Why the command failed, by its exit code.
#[derive(Debug)]
enum Failure {
    /// The lock service may issue a token twice.
    TokenAtRisk,
    /// It could not be seen whether it may.
    TokenUnseen,
    /// It was not used rightly.
    Usage(String),
    /// Redis or the storage can't be reached, or refuses to serve.
    Unavailable(String),
    /// Somebody else holds the lock.
    Busy,
    /// The lease was lost before the work was done.
    LeaseLost,
    /// The storage refused the token.
    Refused,
    /// There is nothing to get.
    NotThere(String),
    /// What is to be told can't be printed.
    CannotPrint(String),
    /// The lock of a handle is not its holder's any more.
    NotOurs,
    /// SIGINT has ended the work, and came from the terminal that we run in.
    Interrupted,
    /// All has been said but the exit code.
    Told(u8),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::TokenAtRisk | Self::TokenUnseen => 1,
            Self::Usage(_) => 64,
            Self::Unavailable(_) => 69,
            Self::Busy => 75,
            Self::LeaseLost | Self::NotOurs => 79,
            Self::NotThere(_) => 66,
            Self::CannotPrint(_) => 74,
            Self::Refused => 80,
            Self::Interrupted => signals::exit_code_of(SIGINT),
            Self::Told(code) => *code,
        }
    }

    fn message(&self) -> &str {
        match self {
            Self::TokenAtRisk => "a token could be lost",
            Self::TokenUnseen => "it could not be seen whether a token could be lost",
            Self::Usage(message)
            | Self::Unavailable(message)
            | Self::NotThere(message)
            | Self::CannotPrint(message) => message,
            Self::NotOurs => "the lock is not ours any more: somebody else may hold it",
            Self::Busy => "somebody else holds the lock",
            Self::LeaseLost => "the lease was lost, and nothing was written",
            Self::Refused => "the storage refused the token, and nothing was written",
            Self::Interrupted | Self::Told(_) => "",
        }
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::Contended { .. } => Self::Busy,
            error => unavailable(&error),
        }
    }
}

impl From<LockServiceError> for Failure {
    fn from(error: LockServiceError) -> Self {
        unavailable(&error)
    }
}

/// Redis has words of its own for a script of somebody who hasn't given the password: it is too long
/// for a request of his.
fn unavailable(error: &dyn Error) -> Failure {
    let error = with_causes(error);
    let asks = [r#""NOAUTH": "#, "Protocol error: unauthenticated"]
        .iter()
        .any(|word| error.contains(word));
    Failure::Unavailable(if asks {
        "Redis asks for a password: give it in the URL".to_owned()
    } else {
        error
    })
}

impl From<RenewError> for Failure {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::Lost(_) => Self::NotOurs,
            error => unavailable(&error),
        }
    }
}

impl From<FencedError> for Failure {
    fn from(error: FencedError) -> Self {
        match error {
            FencedError::Lost { refusal: Some(_), .. } => Self::Refused,
            FencedError::Lost { refusal: None, .. } => Self::LeaseLost,
            error => Self::Unavailable(with_causes(&error)),
        }
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        Self::Unavailable(with_causes(&error))
    }
}

/// An error and its causes in one line.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Runs the command that the process was started with.
pub async fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(step) = run::Become::asked() {
        return exit_code(step.run());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A terminal that can't be written to can't be told so.
            let _ = error.print();
            if redis_was_not_handed_down(&error) {
                let _ = writeln!(
                    io::stderr(),
                    "This runs under lock-client run, which hands down no URL with a password: set \
                     FENCED_REDIS again, or give --redis."
                );
            }
            return if error.use_stderr() { ExitCode::from(64) } else { ExitCode::SUCCESS };
        }
    };
    let result = match cli.command {
        Command::Run(run) => run.run().await,
        Command::Put(put) => put.run().await,
        Command::Get(get) => get.run().await,
        Command::Acquire(acquire) => acquire.run().await,
        Command::Renew(renew) => renew.run().await,
        Command::Release(release) => release.run().await,
        Command::Status(status) => status.run().await,
        Command::Doctor(doctor) => doctor.run().await,
        Command::Node(node) => node.run().await,
        Command::Watch(watch) => watch.run().await,
        Command::Completions(completions) => completions.run(Cli::command()),
        Command::Man(man) => man.run(Cli::command()),
    };
    exit_code(result)
}

fn redis_was_not_handed_down(error: &clap::Error) -> bool {
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(arguments)) => arguments.as_slice(),
        _ => &[],
    };
    error.kind() == ErrorKind::MissingRequiredArgument
        && missing.iter().any(|argument| argument.starts_with("--redis"))
        && env::var_os("FENCING_RESOURCE").is_some()
}

fn exit_code(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Told(code)) => ExitCode::from(code),
        Err(failure @ Failure::Interrupted) => {
            // A shell ends its script, or its loop, only if it sees that the signal has ended us.
            let _ = emulate_default_handler(SIGINT);
            ExitCode::from(failure.exit_code())
        }
        Err(failure) => {
            // A stderr that is closed can't be told so, and the exit code has to be told all the same.
            let _ = writeln!(io::stderr(), "lock-client: {}", failure.message());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn storage(url: &str) -> Result<Storage, Failure> {
    Storage::new(url)
        .map_err(|error| Failure::Usage(format!("{error}; it looks like http://HOST:PORT")))
}

fn ttl(text: &str) -> Result<Ttl, String> {
    let duration = humantime::Duration::from_str(text).map_err(|error| error.to_string())?;
    Ttl::new(duration.into()).map_err(|error| error.to_string())
}

fn name(text: &str) -> Result<ResourceName, String> {
    text.parse().map_err(|error: fence::InvalidName| error.to_string())
}
