//! `lab replay`: replays a scenario, and prints it as it happens.

use std::{
    env,
    io::{self, Write, stdout},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use clap::Args;
use terminal_size::{Width, terminal_size_of};
use tokio::sync::mpsc::unbounded_channel;

use crate::{
    output_file::OutputFile,
    page,
    record::{Event, Recorder, RunRecord},
    scenario::{self, Group, Scenario},
    timeline::{self, Timeline, paragraph},
};

/// The words that the demo uses, for readers who do not know what fencing is.
const INTRODUCTION: [&str; 2] = [
    "A lock service grants a lock for a limited time: a lease. A client that is paused for longer \
     than that does not notice that its lease has expired, and that another client has the lock. \
     So each lease comes with a token, a number that is higher than all before it. The client \
     sends the token with every write, and the storage rejects a write if it has seen a higher \
     token.",
    "Two clients write to one storage. They are real processes, and client 1 is really stopped, \
     for longer than its lease.",
];
/// The width of the output, where it is not a terminal.
const WIDTH: usize = 80;
/// The exit code if the reader of stdout is gone: what shells report of a program that SIGPIPE
/// ended.
const READER_GONE: u8 = 141;

/// What to replay, and how to print it.
#[derive(Args, Debug)]
pub struct Replay {
    /// The scenario
    ///
    /// Without it, the first one is replayed, with an introduction
    scenario: Option<String>,
    /// List the scenarios instead
    #[arg(long)]
    list: bool,
    /// Print the record of the run as JSON
    #[arg(long)]
    json: bool,
    /// Write the run as a page into this file, which a browser opens without a network
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    html: Option<PathBuf>,
    /// How many times as long leases last that will expire, for a busy machine
    #[arg(long, hide = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=5))]
    ttl_factor: u32,
}

impl Replay {
    /// Replays the scenario and prints it.
    ///
    /// # Errors
    /// If there is no such scenario, or it can't be run.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let shown = if self.list { list().map(|()| true) } else { self.replay().await };
        match shown {
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => Ok(ExitCode::from(1)),
            Err(error) if is_reader_gone(&error) => Ok(ExitCode::from(READER_GONE)),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the run showed what the scenario claims.
    async fn replay(&self) -> anyhow::Result<bool> {
        let (scenario, is_demo) = match &self.scenario {
            None => (&scenario::GROUPS[0].scenarios[0], !self.json),
            Some(name) => (find(name)?, false),
        };
        let page = self.html.as_deref().map(OutputFile::create).transpose()?;
        let save =
            |record: &RunRecord| page.map_or(Ok(()), |file| file.save(&page::file(Some(record))));
        if self.json {
            let record = scenario.replay(Recorder::start(|_| {}), self.ttl_factor).await?;
            save(&record)?;
            print(&(serde_json::to_string_pretty(&record)? + "\n"))?;
            return Ok(record.holds);
        }
        let width = width();
        let head = format!("{}: {}", scenario.name, scenario.claim);
        let opening = if is_demo { INTRODUCTION.to_vec() } else { vec![&*head] };
        let opening: Vec<_> =
            opening.into_iter().map(|sentences| paragraph(sentences, width)).collect();
        print(&(opening.join("\n\n") + "\n"))?;
        let record = print_events(scenario, self.ttl_factor, width).await?;
        save(&record)?;
        print(&timeline::summary(&record, scenario.worlds, width))?;
        let verdict = if record.holds { "Shown" } else { "NOT shown, in this run" };
        let verdict = paragraph(&format!("{verdict}: {}", scenario.claim), width);
        print(&format!("\n{verdict}\n"))?;
        if let Some(file) = &self.html {
            print(&format!("The page is in {}. Open it in a browser.\n", file.display()))?;
        }
        if is_demo {
            let others = scenario::all().count() - 1;
            print(&format!(
                "\nThere are {others} more scenarios. This lists them:\n  {}\n",
                to_list()
            ))?;
        }
        Ok(record.holds)
    }
}

/// Replays a scenario, and prints its events as they happen.
async fn print_events(
    scenario: &Scenario,
    ttl_factor: u32,
    width: usize,
) -> anyhow::Result<RunRecord> {
    let (sender, mut events) = unbounded_channel::<Event>();
    // The receiver lives as long as the replay.
    let recorder = Recorder::start(move |event| drop(sender.send(event.clone())));
    let mut timeline = Timeline::new(scenario.tracks, scenario.worlds, width);
    let printing = async {
        while let Some(event) = events.recv().await {
            print(&timeline.event(&event))?;
        }
        Ok(())
    };
    // If nobody reads any more, the replay is dropped where it is, and its processes are killed.
    let (record, ()) = tokio::try_join!(scenario.replay(recorder, ttl_factor), printing)?;
    Ok(record)
}

fn list() -> anyhow::Result<()> {
    let mut text = String::new();
    for Group { title, scenarios } in &scenario::GROUPS {
        text += &format!("{title}\n");
        for Scenario { name, title, needs, seconds, .. } in *scenarios {
            text += &format!("  {name:<21}  {title:<37}  {needs:<10}  {seconds:>2} s\n");
        }
    }
    text += "\nAll need Redis. In a clone, `make NAME` installs what else is named.\n";
    Ok(print(&text)?)
}

fn find(name: &str) -> anyhow::Result<&'static Scenario> {
    scenario::find(name)
        .with_context(|| format!("there is no scenario `{name}`; `{}` lists them", to_list()))
}

/// Prints at once, without colours where no terminal shows them.
fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Whether an output failed because its reader is gone, such as `head` or a pager.
fn is_reader_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn width() -> usize {
    terminal_size_of(stdout()).map_or(WIDTH, |(Width(width), _)| width.into())
}

/// The command that lists the scenarios, as it works where this one was started.
fn to_list() -> String {
    let program = env::args_os().next().unwrap_or_else(|| "lab".into());
    format!("{} replay --list", quoted(&program.to_string_lossy()))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@%".contains(&byte);
    if word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
