//! A track: its name, its line or its strip, its bars, and the flags above.

use svg::node::element::Group;

use super::{
    bar, flag,
    frame::Frame,
    shapes::{Area, line, rectangle, text},
    story::{Kind, Tone, Track},
    strip,
    view::View,
};

const NAME_SIZE: f64 = 12.0;
/// How far a track's name is from the time axis.
const NAME_WIDTH: f64 = 104.0;
/// How far a text's middle is above its foot.
const HALF_HEIGHT: f64 = 4.0;

/// Draws a track.
pub(super) fn draw(view: View<'_>, number: usize, frame: Frame) -> Group {
    let track = &view.story.tracks[number];
    let name_left = view.left - NAME_WIDTH;
    let name =
        text("name", NAME_SIZE, [name_left, frame.middle() + HALF_HEIGHT], track.actor.title());
    let mut group =
        Group::new().set("class", "track").set("data-actor", track.actor.title()).add(name);
    if number > 0 {
        group = group.add(line("rule", [name_left, frame.top], [view.right(), frame.top]));
    }
    let has_strip = track.kind == Kind::Storage || !track.values.is_empty();
    group = if has_strip {
        strip::draw(view, track, frame, group)
    } else {
        let end = track.killed.map_or(view.right(), |moment| view.x(moment));
        group.add(line("life", [view.left, frame.middle()], [end, frame.middle()]))
    };
    group = bar::draw(view, track, frame, group);
    group = flag::draw(view, number, frame, group);
    killed(view, track, frame, group)
}

/// A cross where a client was killed.
fn killed(view: View<'_>, track: &Track, frame: Frame, group: Group) -> Group {
    const ARM: f64 = 6.0;
    let Some(moment) = track.killed else { return group };
    let (x, y) = (view.x(moment), frame.middle());
    let right = track.bars.iter().map(|bar| view.ends(bar.span)[1]).fold(x, f64::max);
    let area = Area { left: x, top: frame.bar_top, width: right - x, height: frame.bar_height };
    let group = group.add(rectangle("orphaned", area, 0.0));
    let class = flag::class("cross", Tone::Bad);
    [[-ARM, ARM], [ARM, -ARM]].into_iter().fold(group, |group, [left, right]| {
        group.add(line(&class, [x + left, y - ARM], [x + right, y + ARM]))
    })
}
