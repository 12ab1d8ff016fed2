//! The `lab` command.

use std::{future::pending, process::ExitCode};

use clap::{Parser, Subcommand};
use lab::{
    bench,
    client::Client,
    doctor::{Doctor, NotExamined},
    hammer::Hammer,
    power_loss::{CarelessServer, PowerLoss},
    programs::Guest,
    replay::Replay,
    serve::Serve,
};
use mimalloc::MiMalloc;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

/// The storage server's allocator, because this program runs itself as a storage server.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Shows what goes wrong with locks, on real processes that are really paused and killed.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replays a scenario, in an unsafe world and in a safe one
    ///
    /// Exits with 0 if the run showed what the scenario claims, 1 if it did not, and 2 if it could
    /// not be run.
    Replay(Replay),
    /// Serves a page on this machine that plays scenarios and shows them as they happen
    ///
    /// Prints the address of the page, with the token that controls it, and opens it in a browser.
    Serve(Serve),
    /// Hammers at a database with clients that all believe they hold the lock
    ///
    /// It works on tables and resources of its own, and removes them. Exits with 0 if the fence
    /// held, or if the wrong way of `--variant` was caught; 1 if not, and 2 if it could not be run.
    Hammer(Hammer),
    /// Examines what the fence would stand on
    #[command(subcommand)]
    Doctor(Doctor),
    /// Loses power under the storage server, with its settings and with careless ones
    ///
    /// Shows how many acknowledged writes survive on SQLite and on PostgreSQL. Needs Linux and
    /// PostgreSQL. Exits with 0 if none was lost with the server's settings and some with each careless
    /// one, 1 if not, and 2 if it could not be run.
    PowerLoss(PowerLoss),
    /// Measures
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Carries out commands from stdin, as a client in a scenario
    #[command(hide = true)]
    Client(Client),
    /// Serves a store that does nothing, for a bench to measure the HTTP around it
    #[command(hide = true)]
    ServeNothing,
    /// Serves an SQLite file with a careless setting, for a power loss
    #[command(hide = true)]
    ServeCarelessly(CarelessServer),
    /// Holds many leases, for a bench to measure the process
    #[command(hide = true)]
    HoldLeases(bench::HoldLeases),
}

fn main() -> ExitCode {
    let guest = Guest::from_arguments();
    let mut runtime = match guest {
        Some(Guest::StorageServer) => Builder::new_multi_thread(),
        // What is measured or driven here is not disturbed by other threads.
        Some(Guest::LockClient) | None => Builder::new_current_thread(),
    };
    let runtime = runtime.enable_all().build().expect("the system can start a runtime");
    runtime.block_on(async {
        match guest {
            Some(guest) => guest.run().await,
            None => run(Cli::parse().command).await.unwrap_or_else(|error| {
                eprintln!("lab: {}", with_causes(&error));
                let is_not_examined = error.is::<NotExamined>();
                ExitCode::from(if is_not_examined { NotExamined::EXIT_CODE } else { 2 })
            }),
        }
    })
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Replay(replay) => unless_interrupted(replay.run()).await,
        Command::Serve(serve) => unless_interrupted(serve.run()).await,
        // It removes its tables before it ends, also when it is interrupted.
        Command::Hammer(hammer) => hammer.run(ending_signal()).await,
        // So does it with its objects.
        Command::Doctor(doctor) => doctor.run(ending_signal()).await,
        Command::PowerLoss(losses) => unless_interrupted(losses.run()).await,
        Command::Bench(bench) => unless_interrupted(bench.run()).await,
        Command::Client(client) => unless_interrupted(client.run()).await,
        Command::HoldLeases(leases) => unless_interrupted(leases.run()).await,
        Command::ServeCarelessly(server) => unless_interrupted(server.run()).await,
        Command::ServeNothing => unless_interrupted(bench::serve_nothing()).await,
    }
}

/// Drops the work when a signal interrupts it. That stops its processes and removes its folders.
async fn unless_interrupted(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    tokio::select! {
        result = work => result,
        interruption = ending_signal() => Err(interruption),
    }
}

/// Waits for a signal that ends a process: a typed Ctrl-C, a request to stop, a closed terminal.
async fn ending_signal() -> anyhow::Error {
    let ending = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [interrupt, terminate, hangup] = ending.map(async |kind| match signal(kind) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => pending().await,
    });
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
        () = hangup => {}
    }
    anyhow::anyhow!("interrupted")
}

/// An error with its causes, except those that its text already contains.
fn with_causes(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        if text.is_empty() {
            cause
        } else if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}
