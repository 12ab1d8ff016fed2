//! In which row each flag is above its track, so that no text overlaps another one, or an arrow.

use super::{
    needs::{Need, is_entered},
    scale::{Scale, least_gap},
    story::{Arrival, Flag, Kind, Story, Tone, Weight},
    text::{bold_width, width},
};

/// The size of a flag's text.
pub(super) const SIZE: f64 = 11.5;
/// How far a flag's text is from its pole.
const INDENT: f64 = 4.0;
/// The same, where an arrow ends.
const ARROW_INDENT: f64 = 8.0;
/// The same, where a rejected request bounces off.
const BOUNCE_INDENT: f64 = 30.0;
/// The space between a flag's text and what follows.
const PADDING: f64 = 7.0;

/// Where a flag is.
#[derive(Clone, Debug)]
pub(super) struct PlacedFlag {
    pub(super) flag: Flag,
    /// Its row, counted up from the track.
    pub(super) row: usize,
    /// How far its text is from its moment.
    pub(super) indent: f64,
}

impl PlacedFlag {
    fn new(story: &Story, track: usize, flag: &Flag, row: usize) -> Self {
        let mut arrows = story.arrows.iter().filter(|arrow| arrow.at == flag.at);
        let arrow = arrows.find(|arrow| story.track_of(arrow.to) == Some(track));
        let indent = match arrow.map(|arrow| arrow.arrival) {
            Some(Arrival::Bounces) => BOUNCE_INDENT,
            Some(Arrival::Lands | Arrival::DestroysNewer) => ARROW_INDENT,
            None => INDENT,
        };
        Self { flag: flag.clone(), row, indent }
    }

    /// How far its text reaches from its moment.
    fn space(&self) -> f64 {
        let text = match self.flag.tone {
            Tone::Plain => width(&self.flag.text, SIZE),
            Tone::Good | Tone::Odd | Tone::Bad => bold_width(&self.flag.text, SIZE),
        };
        self.indent + text + PADDING
    }
}

/// The needed flags of each track, in rows, if every moment comes as early as it can.
pub(super) fn place_needed(story: &Story, needs: &[Need]) -> Vec<Vec<PlacedFlag>> {
    let mut flags = vec![Vec::new(); story.tracks.len()];
    let rows = story.tracks.iter().map(|track| vec![0.0; row_count(track.kind)]);
    let mut rows: Vec<Vec<f64>> = rows.collect();
    let mut moments: Vec<f64> = Vec::new();
    for moment in 0..story.moments.len() {
        // 1. The moment comes after every text that would reach it.
        let mut x = moments.last().map_or(0.0, |last| last + least_gap(story, moment - 1));
        for need in needs.iter().filter(|need| need.to == moment) {
            x = x.max(moments[need.from] + need.space);
        }
        for (track, ends) in rows.iter().enumerate() {
            if is_entered(story, track, moment) {
                x = ends.iter().copied().fold(x, f64::max);
            } else if needed(story, track, moment).next().is_some() {
                x = x.max(ends[0]);
            }
        }
        moments.push(x);
        // 2. Its flags go as high up as their poles can go without crossing a text.
        for (track, ends) in rows.iter_mut().enumerate() {
            for flag in needed(story, track, moment) {
                let free = ends.iter().take_while(|end| **end <= x).count();
                let placed = PlacedFlag::new(story, track, flag, free.saturating_sub(1));
                ends[placed.row] = x + placed.space();
                flags[track].push(placed);
            }
        }
    }
    flags
}

/// The space that flags in rows need: up to the next one, the next arrow, and the end of the axis.
pub(super) fn flag_needs(story: &Story, flags: &[Vec<PlacedFlag>]) -> Vec<Need> {
    let end = story.moments.len();
    let mut needs = Vec::new();
    for (track, flags) in flags.iter().enumerate() {
        for placed in flags {
            let from = placed.flag.at;
            let after =
                flags.iter().filter(|other| other.flag.at > from && other.row >= placed.row);
            let flags = after.map(|other| other.flag.at);
            let arrow = (from + 1..end).find(|moment| is_entered(story, track, *moment));
            let space = placed.space();
            needs.extend(flags.chain(arrow).chain([end]).map(|to| Need { from, to, space }));
        }
    }
    needs
}

/// Adds the optional flags for which there is space.
pub(super) fn add_optional(
    story: &Story,
    scale: &Scale,
    mut flags: Vec<Vec<PlacedFlag>>,
) -> Vec<Vec<PlacedFlag>> {
    for (number, track) in story.tracks.iter().enumerate() {
        for weight in [Weight::Wanted, Weight::Optional] {
            for flag in track.flags.iter().filter(|flag| flag.weight == weight) {
                let rows = (0..row_count(track.kind)).rev();
                let mut placed = rows.map(|row| PlacedFlag::new(story, number, flag, row));
                let has_space = |new: &PlacedFlag| {
                    is_uncrossed(story, scale, number, new)
                        && flags[number].iter().all(|old| !collide(scale, new, old))
                };
                let fitting = placed.find(has_space);
                flags[number].extend(fitting);
            }
        }
    }
    flags
}

/// Whether a flag's text is on the axis, and no arrow goes through it.
fn is_uncrossed(story: &Story, scale: &Scale, track: usize, new: &PlacedFlag) -> bool {
    let start = scale.x(new.flag.at);
    let end = start + new.space();
    let is_crossed = scale
        .moments()
        .iter()
        .enumerate()
        .any(|(moment, x)| start < *x && *x < end && is_entered(story, track, moment));
    end <= scale.width() && !is_crossed
}

/// Whether two texts overlap, or the pole of one crosses the text of the other.
fn collide(scale: &Scale, one: &PlacedFlag, other: &PlacedFlag) -> bool {
    let (low, high) = if one.row < other.row { (one, other) } else { (other, one) };
    let [low_start, high_start] = [low, high].map(|placed| scale.x(placed.flag.at));
    let overlap = low_start < high_start + high.space() && high_start < low_start + low.space();
    overlap && (low.row == high.row || low_start < high_start)
}

/// How many rows of flags a track may have.
pub(super) fn row_count(kind: Kind) -> usize {
    match kind {
        Kind::LockService | Kind::Client => 2,
        Kind::Network | Kind::Storage => 1,
    }
}

fn needed(story: &Story, track: usize, moment: usize) -> impl Iterator<Item = &Flag> {
    let flags = story.tracks[track].flags.iter();
    flags.filter(move |flag| flag.at == moment && flag.weight == Weight::Needed)
}
