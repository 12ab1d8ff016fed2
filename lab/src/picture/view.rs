//! What all parts of a panel need to know.

use super::{
    layout::Layout,
    palette::Palette,
    story::{Span, Story},
};

/// A story, and where its moments are on the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) story: &'a Story,
    pub(super) layout: &'a Layout,
    pub(super) palette: &'a Palette,
    /// Where the time axis begins.
    pub(super) left: f64,
}

impl View<'_> {
    /// Where the time axis ends.
    pub(super) fn right(&self) -> f64 {
        self.left + self.layout.scale.width()
    }

    /// Where a moment is. The moment after the last one is the end of the axis.
    pub(super) fn x(&self, moment: usize) -> f64 {
        self.left + self.layout.scale.x(moment)
    }

    /// Where a span begins and ends.
    pub(super) fn ends(&self, span: Span) -> [f64; 2] {
        self.layout.scale.ends(span).map(|x| self.left + x)
    }
}
