//! A run as people read it: one lane per actor, time going down.

mod words;

use std::fmt::Write;

use anstyle::Style;

use self::words::told;
use crate::record::{Actor, Event, RunRecord, World};

const WIDTH: usize = 80;
const TIME_WIDTH: usize = 8;
const GAP: usize = 2;
/// With more lanes than fit at this width, a timeline is wider than the rest: 120 columns for eight.
const LANE_AT_LEAST: usize = 12;

/// Prints a run's events as they happen.
#[derive(Debug)]
pub struct Timeline {
    lanes: &'static [Actor],
    world: Option<World>,
    /// A client's request, which goes into one row with what the storage does about it.
    request: Option<Event>,
}

impl Timeline {
    /// A timeline with a lane for each of these.
    pub fn new(lanes: &'static [Actor]) -> Self {
        Self { lanes, world: None, request: None }
    }

    /// The lines of an event; before the first of a world, the world's title and the lanes' names.
    pub fn event(&mut self, event: &Event) -> String {
        let mut text = String::new();
        if self.world != Some(event.world) {
            self.world = Some(event.world);
            let bold = Style::new().bold();
            let _ = writeln!(text, "\n{bold}{}{bold:#}\n", paragraph(event.world.title));
            let title = |actor: Actor| (actor.title().to_owned(), Style::new().underline());
            text += &self.row("seconds", title);
        }
        if event.actor != Actor::Storage && is_request(event) {
            self.request = Some(event.clone());
            return text;
        }
        let events: Vec<Event> = self.request.take().into_iter().chain([event.clone()]).collect();
        let time = format!("{}.{:02}", event.at_ms / 1000, event.at_ms % 1000 / 10);
        let cell = |actor: Actor| {
            let own = events.iter().find(|event| event.actor == actor);
            own.map(told).unwrap_or_default()
        };
        text + &self.row(&time, cell)
    }

    /// A row of the table: as many lines as its fullest cell needs.
    fn row(&self, time: &str, cell: impl Fn(Actor) -> (String, Style)) -> String {
        let lane_width = ((WIDTH - TIME_WIDTH) / self.lanes.len() - GAP).max(LANE_AT_LEAST);
        let told = self.lanes.iter().map(|actor| cell(*actor));
        let cells: Vec<_> =
            told.map(|(sentence, style)| (wrapped(&sentence, lane_width), style)).collect();
        let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or_default();
        let mut text = String::new();
        for line in 0..height {
            let time = if line == 0 { time } else { "" };
            let mut written = format!("{time:<TIME_WIDTH$}");
            for (lines, style) in &cells {
                let part = lines.get(line).map_or("", String::as_str);
                let padding = (lane_width + GAP).saturating_sub(part.chars().count());
                if !part.is_empty() {
                    let _ = write!(written, "{style}{part}{style:#}");
                }
                let _ = write!(written, "{:padding$}", "");
            }
            let _ = writeln!(text, "{}", written.trim_end());
        }
        text
    }
}

/// Whether a client's event tells of something that the storage decides.
fn is_request(event: &Event) -> bool {
    matches!(event.event.as_str(), "read" | "written" | "refused" | "claim-refused")
}

/// How each world ended, under the beginning of its title.
pub fn summary(record: &RunRecord) -> String {
    const INDENT: usize = 4;
    let mut text = "\nIn the end:\n".to_owned();
    for (world, outcome) in &record.outcome.0 {
        let title = world.title.split(':').next().unwrap_or_default();
        let _ = writeln!(text, "  {title}");
        for line in wrapped(&outcome.to_string(), WIDTH - INDENT) {
            let _ = writeln!(text, "{:INDENT$}{line}", "");
        }
    }
    text
}

/// A sentence over the whole width.
pub fn paragraph(sentence: &str) -> String {
    wrapped(sentence, WIDTH).join("\n")
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

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::{record::Recorder, scenario};

    #[test]
    fn lanes_of_five_nodes_and_three_others_fit_into_120_columns_and_are_not_broken() {
        const LANES: [Actor; 8] = {
            let [a, b, c, d, e] = Actor::NODES;
            [Actor::Client1, a, b, c, d, e, Actor::Client2, Actor::Storage]
        };
        let mut recorder = Recorder::start(scenario::ALL[0].worlds()[0], |_| {});
        recorder.note(Actor::NodeE, "restarted", None);
        let events = recorder.into_events();
        let text = strip_str(&Timeline::new(&LANES).event(&events[0])).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        let head = text.lines().find(|line| line.starts_with("seconds")).unwrap();
        for lane in LANES {
            assert!(head.contains(lane.title()), "{head}");
        }
    }
}
