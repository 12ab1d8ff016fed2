//! The `lab` command.

use std::{future::pending, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Parser, Subcommand};
use lab::{
    bench, client,
    hammer::Hammer,
    picture::{self, PictureFile},
    record::{Recorder, RunRecord},
    scenario::{self, Scenario},
    timeline::{self, Timeline, paragraph},
};
use tokio::signal::unix::{SignalKind, signal};

/// Shows what goes wrong with locks, on real processes that are really paused and killed.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plays a scenario, with the fence and without
    ///
    /// Exits with 0 if the run showed what the scenario claims, 1 if it did not, and 2 if it could
    /// not be run.
    Replay {
        /// Which scenario
        ///
        /// Without, it is the first
        scenario: Option<String>,
        /// List the scenarios instead
        #[arg(long)]
        list: bool,
        /// Print the run's record as JSON
        #[arg(long)]
        json: bool,
        /// Draw the run as an SVG picture into this file
        #[arg(long, value_name = "FILE", conflicts_with = "list")]
        svg: Option<PathBuf>,
    },
    /// Hammers at a database with clients that all believe they hold the lock
    ///
    /// It works on tables and resources of its own, and removes them. Exits with 0 if the fence held, or
    /// if the wrong way of `--variant` was caught; 1 if not, and 2 if it could not be run.
    Hammer(Hammer),
    /// Measures
    #[command(subcommand)]
    Bench(bench::Bench),
    #[command(flatten)]
    Client(client::Program),
    /// Serves a store that does nothing, for a bench to measure the HTTP around it
    #[command(hide = true)]
    ServeNothing,
    /// Holds many leases, for a bench to measure the process
    #[command(hide = true)]
    HoldLeases(bench::HoldLeases),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Cli::parse().command).await.unwrap_or_else(|error| {
        eprintln!("lab: {}", told(&error));
        ExitCode::from(2)
    })
}

/// An error with its causes, but for those that are part of its text already.
fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |told, cause| {
        let cause = cause.to_string();
        if told.is_empty() {
            cause
        } else if told.contains(&cause) {
            told
        } else {
            format!("{told}: {cause}")
        }
    })
}

/// Dropping what runs stops its processes and removes its folders, so a signal leaves nothing.
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

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Replay { list: true, .. } => {
            for scenario in scenario::ALL {
                println!("{:<22} {}", scenario.name(), scenario.claim());
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Replay { scenario: name, json, svg, .. } => {
            let scenario = match &name {
                None => scenario::ALL[0],
                Some(name) => scenario::named(name).with_context(|| {
                    format!("there is no scenario '{name}'; `lab replay --list` lists them")
                })?,
            };
            let picture = svg.as_deref().map(PictureFile::create).transpose()?;
            let exit_code = unless_interrupted(replay(scenario, json, picture)).await?;
            if name.is_none() && !json {
                let others = scenario::ALL.len() - 1;
                println!("\nThere are {others} more scenarios: `lab replay --list` lists them.");
            }
            Ok(exit_code)
        }
        // It has more to remove than what is dropped.
        Command::Hammer(hammer) => hammer.run(ending_signal()).await,
        Command::Bench(bench) => unless_interrupted(bench.run()).await,
        Command::Client(client) => unless_interrupted(client.run()).await,
        Command::HoldLeases(leases) => unless_interrupted(leases.run()).await,
        Command::ServeNothing => unless_interrupted(bench::serve_nothing()).await,
    }
}

async fn replay(
    scenario: &dyn Scenario,
    json: bool,
    picture: Option<PictureFile>,
) -> anyhow::Result<ExitCode> {
    let mut timeline = Timeline::new(scenario.lanes());
    let first = scenario.worlds()[0];
    let mut recorder = if json {
        Recorder::start(first, |_| {})
    } else {
        println!("{}", paragraph(&format!("{}: {}", scenario.name(), scenario.claim())));
        Recorder::start(first, move |event| anstream::print!("{}", timeline.event(event)))
    };
    let (outcome, holds) = scenario::play(scenario, &mut recorder).await?;
    let events = recorder.into_events();
    let record = RunRecord { scenario: scenario.name(), holds, events, outcome };
    if let Some(file) = picture {
        file.save(&picture::draw(&record, scenario.claim(), scenario.lanes()))?;
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&record)?);
    } else {
        anstream::print!("{}", timeline::summary(&record));
        let verdict = if holds { "Shown" } else { "NOT shown, in this run" };
        println!("\n{}", paragraph(&format!("{verdict}: {}", scenario.claim())));
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
