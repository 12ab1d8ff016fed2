//! A run as a picture: an SVG with a panel for each world, a track for each actor, and time to the
//! right.
//!
//! `events` turns a record into stories, which have no coordinates. `layout` and `frame` decide
//! where things are. `panel` draws, with the modules below it.

mod arrow;
mod axis;
mod bar;
mod caption;
mod draft;
mod events;
mod flag;
mod frame;
mod layout;
mod legend;
mod needs;
mod palette;
mod panel;
mod rows;
mod scale;
mod shapes;
mod story;
mod strip;
#[cfg(test)]
mod tests;
mod text;
mod track;
mod verdict;
mod view;

use svg::{
    Document, Node,
    node::{
        Text,
        element::{Definitions, Description, Group, Pattern, Style, Title},
    },
};

use self::{
    frame::frames,
    layout::Layout,
    legend::Legend,
    palette::Palette,
    panel::Head,
    shapes::{Area, line, rectangle, text},
    story::Story,
    text::{BOLD, wrapped},
    view::View,
};
use crate::{record::RunRecord, scenario::Scenario};

/// The least width of a picture: that of a README on a Git host.
const LEAST_WIDTH: f64 = 880.0;
/// The most moments of all worlds together, so that a picture stays below 60 kB.
const MOST_MOMENTS: usize = 100;
/// How many moments of one world are drawn, at least and at most.
const WORLD_MOMENTS: [usize; 2] = [12, 24];
const MARGIN: f64 = 16.0;
/// The space for the names of the tracks.
const NAMES: f64 = 120.0;
const CLAIM_SIZE: f64 = 14.5;
const LINE_HEIGHT: f64 = 19.0;
/// Between two panels.
const GAP: f64 = 12.0;

/// Draws a run of a scenario.
pub fn draw(record: &RunRecord, scenario: &Scenario) -> String {
    let claim = scenario.claim;
    let [least, most] = WORLD_MOMENTS;
    let most_moments = (MOST_MOMENTS / record.outcome.len().max(1)).clamp(least, most);
    let stories = scenario.worlds.iter().filter_map(|world| {
        let outcome = record.outcome.get(world.name)?;
        let events = record.events.iter().filter(|event| event.world == world.name);
        Some(events::story(world, outcome, scenario.tracks, events, most_moments))
    });
    let stories: Vec<Story> = stories.collect();
    let description = description(claim, &stories);
    let palette = Palette::new(stories.iter());
    let margins = 3.0 * MARGIN + NAMES;
    let layouts = Layout::of_stories(&stories, LEAST_WIDTH - margins);
    let width = layouts.first().map_or(LEAST_WIDTH, |layout| layout.scale.width() + margins);
    let panels: Vec<(Story, Layout)> = stories.into_iter().zip(layouts).collect();

    let panel_width = width - 2.0 * MARGIN;
    let mut content = Group::new();
    let mut top = MARGIN;
    for words in wrapped(claim, CLAIM_SIZE * BOLD, panel_width) {
        top += LINE_HEIGHT;
        content.append(text("claim", CLAIM_SIZE, [MARGIN, top - 4.0], &words));
    }
    if !record.holds {
        top += LINE_HEIGHT;
        let words = "This run did not show it.";
        content.append(text("claim unshown", CLAIM_SIZE, [MARGIN, top - 4.0], words));
    }
    for (story, layout) in &panels {
        top += GAP;
        let head = Head::new(story, panel_width);
        let frames = frames(&panels, top + head.height());
        let bottom = frames.last().map_or(top, |frame| frame.bottom) + axis::HEIGHT;
        let area = Area { left: MARGIN, top, width: panel_width, height: bottom - top };
        let view = View { story, layout, palette: &palette, left: MARGIN + NAMES };
        content.append(panel::draw(view, &head, area, &frames));
        top = bottom;
    }
    let legend = Legend::new(panels.iter().map(|(story, _)| story), panel_width);
    content.append(legend.draw([MARGIN, top + GAP]));
    let height = top + GAP + legend.height() + MARGIN / 2.0;
    document(&record.scenario, &description, [width.ceil(), height.ceil()], content)
}

fn document(title: &str, description: &str, [width, height]: [f64; 2], content: Group) -> String {
    let page = Area { left: 0.0, top: 0.0, width, height };
    let hatching = Pattern::new()
        .set("id", "hatch")
        .set("width", 7)
        .set("height", 7)
        .set("patternUnits", "userSpaceOnUse")
        .set("patternTransform", "rotate(45)")
        .add(line("hatching", [0.0, 0.0], [0.0, 7.0]));
    let document = Document::new()
        .set("width", width)
        .set("height", height)
        .set("viewBox", (0, 0, width, height))
        .set("role", "img")
        .set("aria-labelledby", "title description")
        .add(Title::new(title).set("id", "title"))
        .add(Description::new().set("id", "description").add(Text::new(description)))
        .add(Style::new(include_str!("picture/style.css")))
        .add(Definitions::new().add(hatching))
        .add(rectangle("page", page, 8.0))
        .add(content);
    format!("{document}\n")
}

/// The picture in words, for people who can't see it.
fn description(claim: &str, stories: &[Story]) -> String {
    let worlds = stories.iter().map(|story| format!(" {}: {}.", story.title, story.verdict.words));
    claim.chars().chain(worlds.collect::<String>().chars()).collect()
}
