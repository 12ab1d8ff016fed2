//! A lane: its name, its line or its strip, its bars, and the flags above.

use svg::node::element::Group;

use super::{
    bar, flag,
    frame::Frame,
    shapes::{Area, line, rectangle, text},
    story::{Kind, Lane, Tone},
    strip,
    view::View,
};

const NAME_SIZE: f64 = 12.0;
/// How far a lane's name is from the time axis.
const NAME_WIDTH: f64 = 104.0;
/// How far a text's middle is above its foot.
const HALF_HEIGHT: f64 = 4.0;

/// Draws a lane.
pub(super) fn draw(view: View<'_>, number: usize, frame: Frame) -> Group {
    let lane = &view.story.lanes[number];
    let name_left = view.left - NAME_WIDTH;
    let name =
        text("name", NAME_SIZE, [name_left, frame.middle() + HALF_HEIGHT], lane.actor.title());
    let mut group =
        Group::new().set("class", "lane").set("data-actor", lane.actor.title()).add(name);
    if number > 0 {
        group = group.add(line("rule", [name_left, frame.top], [view.right(), frame.top]));
    }
    let has_strip = lane.kind == Kind::Storage || !lane.values.is_empty();
    group = if has_strip {
        strip::draw(view, lane, frame, group)
    } else {
        let end = lane.killed.map_or(view.right(), |moment| view.x(moment));
        group.add(line("life", [view.left, frame.middle()], [end, frame.middle()]))
    };
    group = bar::draw(view, lane, frame, group);
    group = flag::draw(view, number, frame, group);
    killed(view, lane, frame, group)
}

/// A cross where a client was killed.
fn killed(view: View<'_>, lane: &Lane, frame: Frame, group: Group) -> Group {
    const ARM: f64 = 6.0;
    let Some(moment) = lane.killed else { return group };
    let (x, y) = (view.x(moment), frame.middle());
    let right = lane.bars.iter().map(|bar| view.ends(bar.span)[1]).fold(x, f64::max);
    let area = Area { left: x, top: frame.bar_top, width: right - x, height: frame.bar_height };
    let group = group.add(rectangle("orphaned", area, 0.0));
    let class = flag::class("cross", Tone::Bad);
    [[-ARM, ARM], [ARM, -ARM]].into_iter().fold(group, |group, [left, right]| {
        group.add(line(&class, [x + left, y - ARM], [x + right, y + ARM]))
    })
}
