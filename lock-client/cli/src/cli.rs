//! The subcommands.

use clap::{CommandFactory, Parser, Subcommand};

use crate::{
    acquire, break_lock, doctor, exit_code,
    failure::Failure,
    get, handle, list,
    lock_service::{LockService, On},
    node, put, run, self_description, status, stderr, watch,
};

/// Locks that hand out fencing tokens
///
/// FENCED_LOCKS or --locks names the lock service: `lock-client status --help` lists the URLs. --locks
/// may come before or after the command.
#[derive(Debug, Parser)]
#[command(name = "lock-client", bin_name = "lock-client", version, after_help = exit_code::help())]
// The help of each command with a lock service shows them.
#[command(mut_arg("locks", |arg| arg.hide(true)), mut_arg("answer_timeout", |arg| arg.hide(true)))]
pub(crate) struct Cli {
    /// Log what the lock client does, on stderr; RUST_LOG chooses more finely
    #[arg(short, long, global = true)]
    verbose: bool,

    /// The lock service of any command, which may be named before or after the command.
    #[command(flatten)]
    lock_service: LockService,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a command under a lock, with its token
    #[command(after_long_help = run::help())]
    Run(Box<On<run::Run>>),
    /// Writes a value under a lock, with its token
    ///
    /// Acquires the lock of the resource's name if it is free, reads the value (which claims the
    /// resource for the token), checks the lease, writes, and releases. SIGHUP, SIGINT,
    /// SIGQUIT and SIGTERM end it and release the lock; a write that was already sent may still land.
    Put(On<put::Put>),
    /// Prints the value of a resource
    Get(get::Get),
    /// Acquires a lock, and prints a handle for renew and release
    #[command(after_long_help = acquire::HELP)]
    Acquire(On<acquire::Acquire>),
    /// Renews a lock by its handle, and prints its new handle
    Renew(On<handle::Renew>),
    /// Releases a lock by its handle
    Release(On<handle::Release>),
    /// Shows who holds a lock
    Status(On<status::Status>),
    /// Lists the locks that are held
    #[command(after_long_help = list::HELP)]
    List(On<list::List>),
    /// Frees a lock that its holder left, if it still has this token
    #[command(name = "break", after_long_help = break_lock::HELP)]
    Break(On<break_lock::Break>),
    /// Checks whether this lock service could lose a token, and shows how to prevent that
    Doctor(On<doctor::Doctor>),
    /// Starts and maintains a cluster of independent Redis nodes (Redlock)
    #[command(subcommand)]
    Node(node::Node),
    /// Prints the lock's state, and again on every change
    #[command(after_long_help = watch::HELP)]
    Watch(On<watch::Watch>),
    /// Prints a script that completes this command in a shell
    Completions(self_description::Completions),
    /// Prints the manual page
    Man(self_description::Man),
}

impl Cli {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        stderr::log(self.verbose);
        match self.command {
            Command::Run(on) => on.command.run(&on.lock_service).await,
            Command::Put(on) => on.command.run(&on.lock_service).await,
            Command::Get(get) => get.run().await,
            Command::Acquire(on) => on.command.run(&on.lock_service).await,
            Command::Renew(on) => on.command.run(&on.lock_service).await,
            Command::Release(on) => on.command.run(&on.lock_service).await,
            Command::Status(on) => on.command.run(&on.lock_service).await,
            Command::List(on) => on.command.run(&on.lock_service).await,
            Command::Break(on) => on.command.run(&on.lock_service).await,
            Command::Doctor(on) => on.command.run(&on.lock_service).await,
            Command::Node(node) => node.run().await,
            Command::Watch(on) => on.command.run(&on.lock_service).await,
            Command::Completions(completions) => completions.run(Self::command()),
            Command::Man(man) => man.run(Self::command()),
        }
    }
}
