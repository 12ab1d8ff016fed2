//! Where a panel's tracks are, from its top.

use super::{
    layout::Layout,
    rows::row_count,
    story::{Kind, Story},
};

/// The height of a row of flags.
pub(super) const ROW_HEIGHT: f64 = 15.0;
/// The height of a fence.
pub(super) const FENCE_HEIGHT: f64 = 15.0;
const BAR_HEIGHT: f64 = 24.0;
const LINE_HEIGHT: f64 = 8.0;
const MARGIN: f64 = 7.0;
/// Between the flags and the bar.
const POLE: f64 = 8.0;

/// The vertical coordinates of a track.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) top: f64,
    /// Where its bars, its strip or its line begin.
    pub(super) bar_top: f64,
    pub(super) bar_height: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// The middle of the bars.
    pub(super) fn middle(&self) -> f64 {
        self.bar_top + self.bar_height / 2.0
    }

    /// The bottom of the bars.
    pub(super) fn bar_bottom(&self) -> f64 {
        self.bar_top + self.bar_height
    }

    /// Where the text of a row of flags stands, counted up from the bar.
    pub(super) fn baseline(&self, row: usize) -> f64 {
        self.bar_top - POLE - up(row)
    }
}

/// The tracks of panels, which are equally high in all of them.
pub(super) fn frames(panels: &[(Story, Layout)], top: f64) -> Vec<Frame> {
    let Some((story, _)) = panels.first() else { return Vec::new() };
    let mut top = top;
    let mut frames = Vec::new();
    for (number, track) in story.tracks.iter().enumerate() {
        let flags = panels.iter().flat_map(|(_, layout)| &layout.flags[number]);
        let used = flags.map(|placed| placed.row + 1).max().unwrap_or(0);
        let rows = match track.kind {
            // A rejected request needs space to bounce off.
            Kind::Storage => 2,
            _ => used.min(row_count(track.kind)),
        };
        let has_strip = panels.iter().any(|(story, _)| !story.tracks[number].values.is_empty());
        let bar_height = match track.kind {
            Kind::LockService if !has_strip => LINE_HEIGHT,
            _ => BAR_HEIGHT,
        };
        let fence_height = if track.kind == Kind::Storage { FENCE_HEIGHT } else { 0.0 };
        let bar_top = top + MARGIN + up(rows) + POLE / 2.0;
        let bottom = bar_top + bar_height + fence_height + MARGIN;
        frames.push(Frame { top, bar_top, bar_height, bottom });
        top = bottom;
    }
    frames
}

/// The height of so many rows of flags.
fn up(rows: usize) -> f64 {
    let rows = u32::try_from(rows).expect("there are few rows");
    f64::from(rows) * ROW_HEIGHT
}
