//! The `lab` command.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use lab::{
    bench,
    record::Recorder,
    scenario::{self, Scenario},
    timeline::{self, Timeline},
};

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
        #[arg(default_value = scenario::ALL[0].name())]
        scenario: String,
        /// List the scenarios instead
        #[arg(long)]
        list: bool,
        /// Print the run's record as JSON
        #[arg(long)]
        json: bool,
    },
    /// Measures
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Serves a store that does nothing, for a bench to measure the HTTP around it
    #[command(hide = true)]
    ServeNothing,
}

/// Dropping what runs stops its processes and removes its folders, so an interrupt leaves nothing.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let command = Cli::parse().command;
    let result = tokio::select! {
        result = run(command) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    result.unwrap_or_else(|error| {
        eprintln!("lab: {error:#}");
        ExitCode::from(2)
    })
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Replay { list: true, .. } => {
            for scenario in scenario::ALL {
                println!("{:<16} {}", scenario.name(), scenario.claim());
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Replay { scenario: name, json, .. } => {
            let scenario = scenario::named(&name).with_context(|| {
                format!("there is no scenario '{name}'; `lab replay --list` lists them")
            })?;
            replay(scenario, json).await
        }
        Command::Bench(bench) => bench.run().await,
        Command::ServeNothing => bench::serve_nothing().await,
    }
}

async fn replay(scenario: &dyn Scenario, json: bool) -> anyhow::Result<ExitCode> {
    let record = if json {
        let record = scenario.run(Recorder::start(|_| {})).await?;
        println!("{}", serde_json::to_string_pretty(&record)?);
        record
    } else {
        println!("{}: {}", scenario.name(), scenario.claim());
        let mut timeline = Timeline::default();
        let show = move |event: &_| anstream::print!("{}", timeline.event(event));
        let record = scenario.run(Recorder::start(show)).await?;
        anstream::print!("{}", timeline::summary(&record));
        match record.holds {
            true => println!("\nShown: {}", scenario.claim()),
            false => println!("\nNOT shown, in this run: {}", scenario.claim()),
        }
        record
    };
    Ok(if record.holds { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
