//! A run as people read it: a track for each actor, and time goes down.

mod text;
mod words;

use std::fmt::Write;

use anstyle::Style;

pub use self::text::paragraph;
use self::{
    text::wrapped,
    words::{Stored, words},
};
use crate::record::{Actor, Event, EventKind, RunRecord, World};

const TIME_WIDTH: usize = 8;
const GAP: usize = 2;
/// With more tracks than fit at this width, a timeline is wider than its terminal.
const TRACK_AT_LEAST: usize = 12;

/// Writes the events of a run as they happen.
#[derive(Debug)]
pub struct Timeline {
    tracks: &'static [Actor],
    worlds: &'static [World],
    width: usize,
    world: Option<&'static World>,
    /// A client's request, which shares a row with the decision of the storage.
    request: Option<Event>,
    /// The value that the storage has now.
    value: Option<String>,
}

impl Timeline {
    /// A timeline with these tracks, for a run in these worlds. It is this many characters wide.
    pub fn new(tracks: &'static [Actor], worlds: &'static [World], width: usize) -> Self {
        Self { tracks, worlds, width, world: None, request: None, value: None }
    }

    /// Writes the lines of an event; before the first one of a world, its title and the tracks'
    /// heads.
    pub fn event(&mut self, event: &Event) -> String {
        let mut text = String::new();
        if self.world.is_none_or(|world| world.name != event.world) {
            self.world = self.worlds.iter().find(|world| world.name == event.world);
            self.value = None;
            let (bold, title) = (Style::new().bold(), self.world.map_or("", |world| world.title));
            let _ = writeln!(text, "\n{bold}{}{bold:#}\n", paragraph(title, self.width));
            let head = |actor: Actor| (actor.title().to_owned(), Style::new().underline());
            text += &self.row("seconds", head);
        }
        if event.actor != Actor::Storage && is_request(&event.kind) {
            self.request = Some(event.clone());
            return text;
        }
        let request = self.request.take();
        let after = value_after(event, request.as_ref());
        let stored = Stored {
            checks: self.world.map(|world| world.checks),
            before: self.value.as_deref(),
            after: after.as_deref(),
        };
        let events = [request.as_ref(), Some(event)];
        let time = format!("{}.{:02}", event.at_ms / 1000, event.at_ms % 1000 / 10);
        text += &self.row(&time, |actor| {
            let own = events.into_iter().flatten().find(|event| event.actor == actor);
            own.map(|event| words(event, &stored)).unwrap_or_default()
        });
        self.value = after.or(self.value.take());
        text
    }

    /// Writes a row: as many lines as its fullest cell needs.
    fn row(&self, time: &str, cell: impl Fn(Actor) -> (String, Style)) -> String {
        let tracks_width = self.width.saturating_sub(TIME_WIDTH);
        let track_width =
            (tracks_width / self.tracks.len()).saturating_sub(GAP).max(TRACK_AT_LEAST);
        let cells: Vec<_> = self
            .tracks
            .iter()
            .map(|actor| cell(*actor))
            .map(|(sentence, style)| (wrapped(&sentence, track_width), style))
            .collect();
        let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or_default();
        let mut text = String::new();
        for line in 0..height {
            let time = if line == 0 { time } else { "" };
            let mut written = format!("{time:<TIME_WIDTH$}");
            for (lines, style) in &cells {
                let part = lines.get(line).map_or("", String::as_str);
                let padding = (track_width + GAP).saturating_sub(part.chars().count());
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

/// Whether a client's event shows a request that the storage decides on.
fn is_request(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Read(_)
            | EventKind::Written { .. }
            | EventKind::Rejected(_)
            | EventKind::ClaimRejected(_)
    )
}

/// The value that the storage has after this event, if the event shows it.
fn value_after(event: &Event, request: Option<&Event>) -> Option<String> {
    match &request?.kind {
        EventKind::Read(content) | EventKind::Written { content, .. } => content.value.clone(),
        _ => None,
    }
    .filter(|_| event.actor == Actor::Storage)
}

/// How each world ended, under its short name.
pub fn summary(record: &RunRecord, worlds: &[World], width: usize) -> String {
    const INDENT: usize = 4;
    let mut text = "\nIn the end:\n".to_owned();
    for (name, outcome) in &record.outcome {
        let world = worlds.iter().find(|world| world.name == name);
        let title = world.map_or(name.as_str(), |world| world.title);
        let _ = writeln!(text, "  {}", title.split(':').next().unwrap_or_default());
        for line in wrapped(&outcome.to_string(), width.saturating_sub(INDENT)) {
            let _ = writeln!(text, "{:INDENT$}{line}", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::{record::Recorder, scenario};

    #[test]
    fn tracks_of_five_nodes_and_three_others_fit_into_120_columns_and_are_not_broken() {
        const TRACKS: [Actor; 8] = {
            let [a, b, c, d, e] = Actor::NODES;
            [Actor::Client1, a, b, c, d, e, Actor::Client2, Actor::Storage]
        };
        let event =
            Recorder::start(|_| {}).record(Actor::NodeE, None, EventKind::Restarted { keys: 0 });
        let mut timeline = Timeline::new(&TRACKS, scenario::GROUPS[0].scenarios[0].worlds, 80);
        let text = strip_str(&timeline.event(&event)).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        let head = text.lines().find(|line| line.starts_with("seconds")).unwrap();
        for track in TRACKS {
            assert!(head.contains(track.title()), "{head}");
        }
    }
}
