//! A panel: one world, with its title, its tracks, its arrows and its time axis.

use svg::node::element::{Group, TSpan};

use super::{
    arrow, axis, flag,
    frame::Frame,
    shapes::{Area, centred_text, line, path, rectangle, text},
    story::{Story, Tone, Verdict},
    text::{BOLD, bold_width, wrapped},
    track,
    view::View,
};

const TITLE_SIZE: f64 = 13.5;
const FACTS_SIZE: f64 = 11.0;
const VERDICT_SIZE: f64 = 12.0;
const LINE_HEIGHT: f64 = 17.0;
const PADDING: f64 = 14.0;
/// The height of a verdict.
const BADGE_HEIGHT: f64 = 22.0;
/// The width of the mark in it.
const MARK_WIDTH: f64 = 16.0;

/// A panel's head: its texts, in lines.
#[derive(Debug)]
pub(super) struct Head {
    title: Vec<String>,
    facts: Vec<String>,
    badge_width: f64,
}

impl Head {
    /// Breaks a story's title and facts into lines for a panel of this width.
    pub(super) fn new(story: &Story, panel_width: f64) -> Self {
        let badge_width = bold_width(&story.verdict.words, VERDICT_SIZE) + MARK_WIDTH + 2.0 * 10.0;
        let space = panel_width - 2.0 * PADDING;
        Self {
            title: wrapped(story.title, TITLE_SIZE * BOLD, space - badge_width - PADDING),
            facts: wrapped(&story.facts, FACTS_SIZE, space),
            badge_width,
        }
    }

    /// Its height.
    pub(super) fn height(&self) -> f64 {
        let lines = u32::try_from(self.title.len() + self.facts.len()).expect("there are few");
        PADDING + f64::from(lines) * LINE_HEIGHT + 4.0
    }
}

/// Draws a panel into an area. The tracks are as far from its head as the frames say.
pub(super) fn draw(view: View<'_>, head: &Head, area: Area, frames: &[Frame]) -> Group {
    let story = view.story;
    let tone = flag::class("card", story.verdict.tone);
    let mut group = Group::new()
        .set("class", "panel")
        .set("data-world", story.world)
        .add(rectangle(&tone, area, 8.0));
    group = draw_head(group, story, head, area);
    let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return group };
    group = group.add(axis::bands(view, [first.top, last.bottom]));
    for (number, frame) in frames.iter().enumerate() {
        group = group.add(track::draw(view, number, *frame));
    }
    let arrows = story.arrows.iter().filter_map(|arrow| arrow::draw(view, arrow, frames));
    group = arrows.fold(group, Group::add);
    group.add(axis::draw(view, last.bottom + 4.0))
}

fn draw_head(mut group: Group, story: &Story, head: &Head, area: Area) -> Group {
    let left = area.left + PADDING;
    let mut foot = area.top + PADDING + TITLE_SIZE - 2.0;
    let lead = story.title.find(':').map_or(story.title, |colon| &story.title[..=colon]);
    for (number, title) in head.title.iter().enumerate() {
        let words = match title.strip_prefix(lead) {
            Some(rest) if number == 0 => {
                let lead = TSpan::new(lead).set("class", "lead");
                text("title", TITLE_SIZE, [left, foot], "")
                    .add(lead)
                    .add(svg::node::Text::new(rest))
            }
            _ => text("title", TITLE_SIZE, [left, foot], title),
        };
        group = group.add(words);
        foot += LINE_HEIGHT;
    }
    for facts in &head.facts {
        group = group.add(text("facts", FACTS_SIZE, [left, foot - 1.0], facts));
        foot += LINE_HEIGHT;
    }
    group.add(badge(&story.verdict, head, area))
}

/// The verdict: a mark and a few words.
fn badge(verdict: &Verdict, head: &Head, area: Area) -> Group {
    let width = head.badge_width;
    let left = area.left + area.width - PADDING - width;
    let top = area.top + PADDING - 3.0;
    let pill = Area { left, top, width, height: BADGE_HEIGHT };
    let (x, y) = (left + 15.0, top + BADGE_HEIGHT / 2.0);
    let middle = left + 10.0 + MARK_WIDTH + (width - MARK_WIDTH - 20.0) / 2.0;
    let group = Group::new()
        .set("class", flag::class("verdict", verdict.tone))
        .add(rectangle("badge", pill, BADGE_HEIGHT / 2.0))
        .add(centred_text("in-badge", VERDICT_SIZE, [middle, y + 4.2], &verdict.words));
    if verdict.tone == Tone::Bad {
        let crossing =
            [[[x - 4.0, y - 4.0], [x + 4.0, y + 4.0]], [[x - 4.0, y + 4.0], [x + 4.0, y - 4.0]]];
        crossing.into_iter().fold(group, |group, [from, to]| group.add(line("mark", from, to)))
    } else {
        group.add(path("mark", &[[x - 4.5, y], [x - 1.5, y + 3.5], [x + 4.5, y - 4.0]]))
    }
}
