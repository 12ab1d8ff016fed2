//! A run as people read it: one lane per actor, time going down.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::record::{Actor, Event, Outcome, RunRecord, World};

const LANES: [(Actor, &str); 4] = [
    (Actor::Client1, "client 1"),
    (Actor::Redis, "lock (Redis)"),
    (Actor::Client2, "client 2"),
    (Actor::Storage, "storage"),
];
const TIME_WIDTH: usize = 8;
const LANE_WIDTH: usize = 16;
const GAP: usize = 2;

/// Prints a run's events as they happen.
#[derive(Debug)]
pub struct Timeline {
    /// The titles of the unsafe world and of its twin.
    titles: [&'static str; 2],
    world: Option<World>,
    /// A client's request, which goes into one row with what the storage does about it.
    request: Option<Event>,
}

impl Timeline {
    /// A timeline whose two worlds have these titles: first the unsafe one, then its twin.
    pub fn new(titles: [&'static str; 2]) -> Self {
        Self { titles, world: None, request: None }
    }

    /// The lines of an event; before the first of a world, the world's title and the lanes' names.
    pub fn event(&mut self, event: &Event) -> String {
        let mut text = String::new();
        if self.world != Some(event.world) {
            self.world = Some(event.world);
            let [without, with] = self.titles;
            let title = match event.world {
                World::Unfenced => without,
                World::Fenced => with,
            };
            let bold = Style::new().bold();
            let _ = writeln!(text, "\n{bold}{}{bold:#}\n", paragraph(title));
            text += &row("seconds", |lane| (LANES[lane].1.to_owned(), Style::new().underline()));
        }
        if event.actor != Actor::Storage && is_request(event) {
            self.request = Some(event.clone());
            return text;
        }
        let events: Vec<Event> = self.request.take().into_iter().chain([event.clone()]).collect();
        let time = format!("{}.{:02}", event.at_ms / 1000, event.at_ms % 1000 / 10);
        let cell = |lane: usize| {
            let own = events.iter().find(|event| event.actor == LANES[lane].0);
            own.map(told).unwrap_or_default()
        };
        text + &row(&time, cell)
    }
}

/// Whether a client's event tells of something that the storage decides.
fn is_request(event: &Event) -> bool {
    matches!(event.event.as_str(), "read" | "written" | "refused")
}

/// Both end states, under the beginnings of the worlds' titles.
pub fn summary(record: &RunRecord, titles: [&str; 2]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "\nIn the end the storage has:");
    let [without, with] = titles.map(|title| title.split(':').next().unwrap_or_default());
    for (world, outcome) in [(without, &record.outcome.unfenced), (with, &record.outcome.fenced)] {
        let Outcome { value, token, stale_writes_accepted, stale_writes_refused, updates_lost } =
            outcome;
        let value = value.as_deref().unwrap_or("nothing");
        let token = token.map_or("none".to_owned(), |token| token.to_string());
        let _ = writeln!(
            text,
            "  {world}\n    '{value}', token {token}; stale writes accepted: \
             {stale_writes_accepted}, refused: {stale_writes_refused};\n    updates lost: \
             {updates_lost}",
        );
    }
    text
}

/// What an event says to somebody who never heard of fencing, and how it looks.
fn told(event: &Event) -> (String, Style) {
    let token = event.token.map_or_else(String::new, |token| token.to_string());
    let detail = |name: &str| match event.details.get(name) {
        Some(Value::String(text)) => format!("'{text}'"),
        Some(Value::Number(number)) => number.to_string(),
        _ => "nothing".to_owned(),
    };
    let enforced = event.world == World::Fenced;
    let plain = Style::new();
    let good = AnsiColor::Green.on_default();
    let bad = AnsiColor::Red.on_default().bold();
    let odd = AnsiColor::Yellow.on_default();
    match event.event.as_str() {
        "counter-preset" => (format!("the last token given was {token}"), plain),
        "acquired" => (format!("gets the lock, with token {token}"), good),
        "read" => (format!("reads: {}", detail("value")), plain),
        "lease-checked" => {
            let left = event.details.get("remaining_ms").and_then(Value::as_u64).unwrap_or(0);
            let (seconds, tenths) = (left / 1000, left % 1000 / 100);
            (format!("checks its lease: {seconds}.{tenths} s left. Is about to write"), plain)
        }
        "paused" => ("is PAUSED (SIGSTOP)".to_owned(), odd),
        "resumed" => ("WAKES UP (SIGCONT), and does what it was about to".to_owned(), odd),
        "lease-expired" => (format!("the lease of token {token} runs out; the lock is free"), odd),
        "written" => (format!("has written {} with token {token}", detail("value")), plain),
        "refused" if event.actor == Actor::Storage => {
            (format!("REFUSES token {token}: it has seen {}", detail("highest_token")), good)
        }
        "refused" => (format!("tries to write with token {token}, and is refused"), odd),
        "released" => ("releases the lock".to_owned(), plain),
        "lease-lost" => ("finds that the lock is not its own any more".to_owned(), odd),
        "answered" => ("answers".to_owned(), plain),
        "accepted-claim" if enforced => (format!("refuses tokens below {token} from now on"), good),
        "accepted-claim" => (format!("answers; has seen token {token}"), plain),
        "accepted-stale-write" => (format!("accepts token {token}: NEWER DATA IS LOST"), bad),
        "accepted-write" => (format!("accepts token {token}"), good),
        other => (format!("{other} {token}"), plain),
    }
}

/// A row of the table: as many lines as its fullest cell needs.
fn row(time: &str, cell: impl Fn(usize) -> (String, Style)) -> String {
    let cells: Vec<_> = (0..LANES.len())
        .map(|lane| {
            let (sentence, style) = cell(lane);
            (wrapped(&sentence, LANE_WIDTH), style)
        })
        .collect();
    let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or_default();
    let mut text = String::new();
    for line in 0..height {
        let time = if line == 0 { time } else { "" };
        let mut written = format!("{time:<TIME_WIDTH$}");
        for (lines, style) in &cells {
            let part = lines.get(line).map_or("", String::as_str);
            let padding = (LANE_WIDTH + GAP).saturating_sub(part.chars().count());
            if !part.is_empty() {
                let _ = write!(written, "{style}{part}{style:#}");
            }
            let _ = write!(written, "{:padding$}", "");
        }
        let _ = writeln!(text, "{}", written.trim_end());
    }
    text
}

/// A sentence over the whole width.
pub fn paragraph(sentence: &str) -> String {
    wrapped(sentence, TIME_WIDTH + LANES.len() * (LANE_WIDTH + GAP)).join("\n")
}

/// Breaks a sentence into lines of at most so many characters.
fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
