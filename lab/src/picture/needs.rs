//! The space that texts in bars and strips need between moments.

use super::{
    caption,
    story::{Bar, Content, Story, Track},
    text::bold_width,
};

/// The size of a text in a bar or a strip.
pub(super) const BAR_SIZE: f64 = 12.0;
/// How far a text in a bar is from its ends.
pub(super) const PADDING: f64 = 7.0;

/// Two moments, and how far they must be apart.
#[derive(Debug)]
pub(super) struct Need {
    pub(super) from: usize,
    /// The moment after the last one is the end of the world.
    pub(super) to: usize,
    pub(super) space: f64,
}

/// What the texts in the bars and the strips of a story need.
pub(super) fn bar_needs(story: &Story) -> Vec<Need> {
    let mut needs = Vec::new();
    for (number, track) in story.tracks.iter().enumerate() {
        for bar in &track.bars {
            let space = bold_width(&caption::bar(story, bar), BAR_SIZE) + 2.0 * PADDING;
            if matches!(bar.content, Content::Belief(_)) {
                continue;
            }
            if bar.content == Content::Pause {
                let from = longest_gap(story, bar);
                needs.push(Need { from, to: from + 1, space: space + 2.0 * PADDING });
                continue;
            }
            let from = bar.span.start;
            let to = bare_end(story, track, bar);
            needs.push(Need { from, to, space });
            let crossing = (from + 1..to).find(|moment| is_crossed(story, number, *moment));
            needs.extend(crossing.map(|to| Need { from, to, space }));
        }
        for (number, value) in track.values.iter().enumerate() {
            let to = track.values.get(number + 1).map_or(story.moments.len(), |next| next.since);
            let space = bold_width(&caption::value(value), BAR_SIZE) + 2.0 * PADDING;
            needs.push(Need { from: value.since, to, space });
        }
    }
    needs
}

/// The moment before the longest time of a pause.
pub(super) fn longest_gap(story: &Story, bar: &Bar) -> usize {
    let last = story.moments.len() - 1;
    let gaps = bar.span.start..bar.span.end.unwrap_or(last);
    gaps.max_by_key(|moment| story.moments[moment + 1].saturating_sub(story.moments[*moment]))
        .unwrap_or(bar.span.start)
}

/// Where a bar ends, or something begins to cover it.
fn bare_end(story: &Story, track: &Track, bar: &Bar) -> usize {
    let end = bar.span.end.unwrap_or(story.moments.len());
    let pauses = track.bars.iter().filter(|other| other.content == Content::Pause);
    let starts = pauses.map(|pause| pause.span.start).chain(track.killed);
    starts.filter(|start| (bar.span.start..end).contains(start)).min().unwrap_or(end)
}

/// Whether an arrow goes through a track at a moment, or ends at it.
pub(super) fn is_entered(story: &Story, track: usize, moment: usize) -> bool {
    arrows(story, moment).any(|[from, to]| from < track && track <= to)
}

/// Whether an arrow goes through a track at a moment.
fn is_crossed(story: &Story, track: usize, moment: usize) -> bool {
    arrows(story, moment).any(|[from, to]| from < track && track < to)
}

/// The tracks that the arrows of a moment connect.
fn arrows(story: &Story, moment: usize) -> impl Iterator<Item = [usize; 2]> {
    let arrows = story.arrows.iter().filter(move |arrow| arrow.at == moment);
    arrows.filter_map(|arrow| Some([story.track_of(arrow.from)?, story.track_of(arrow.to)?]))
}
