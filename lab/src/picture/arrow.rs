//! Arrows from one track down to another.

use svg::node::element::Group;

use super::{
    frame::Frame,
    shapes::{dot, line, path},
    story::{Arrival, Arrow, Content, Kind, Message},
    view::View,
};

/// The length of an arrow's head, and half its width.
const HEAD: [f64; 2] = [7.0, 4.0];
/// How far a rejected request bounces off, to the right and up.
const BOUNCE: [f64; 2] = [18.0, 26.0];
/// The radius of a dot on the line of a lock service.
const DOT: f64 = 3.5;
/// Half the width of the mark where it does.
const SHIELD: f64 = 9.0;

/// Draws an arrow, if both its tracks are there.
pub(super) fn draw(view: View<'_>, arrow: &Arrow, frames: &[Frame]) -> Option<Group> {
    let [from, to] = [arrow.from, arrow.to].map(|actor| view.story.track_of(actor));
    let (from, to) = (from?, to?);
    let x = view.x(arrow.at);
    let start = match view.story.tracks[from].kind {
        Kind::Client if !has_bar(view, from, arrow.at) => frames[from].middle(),
        Kind::LockService if view.story.tracks[from].values.is_empty() => {
            frames[from].middle() + DOT
        }
        _ => frames[from].bar_bottom(),
    };
    let end = frames[to].bar_top;
    let (message, arrival) = names(arrow);
    let colour = view.palette.class(arrow.token);
    let mut group = Group::new()
        .set("class", format!("arrow {message} {arrival} {colour}"))
        .set("data-from", arrow.from.title())
        .set("data-to", arrow.to.title());
    if let Some(token) = arrow.token {
        group = group.set("data-token", token.as_u64());
    }
    let tip = [x, end - 1.0];
    let shaft_end = if arrow.message == Message::Expiry { end } else { end - HEAD[0] };
    group = group.add(line("halo", [x, start], [x, end - 2.0])).add(line(
        "shaft",
        [x, start],
        [x, shaft_end],
    ));
    if matches!(arrow.message, Message::Read | Message::Write) {
        group = group.add(dot("tail", [x, start], 2.8));
    }
    Some(match arrow.arrival {
        _ if arrow.message == Message::Expiry => group,
        Arrival::Bounces => bounce(group, tip),
        Arrival::Lands | Arrival::DestroysNewer => {
            let [length, half] = HEAD;
            let [left, right] = [[x - half, tip[1] - length], [x + half, tip[1] - length]];
            group.add(path("head", &[left, right, tip]))
        }
    })
}

/// The way back up, and the mark where it begins.
fn bounce(group: Group, [x, y]: [f64; 2]) -> Group {
    let [right, up] = BOUNCE;
    let tip = [x + right, y - up];
    // The head points along the way back.
    let length = right.hypot(up);
    let along = [right / length, -up / length];
    let back = [tip[0] - along[0] * HEAD[0], tip[1] - along[1] * HEAD[0]];
    let side =
        |sign: f64| [back[0] - sign * along[1] * HEAD[1], back[1] + sign * along[0] * HEAD[1]];
    group
        .add(path("shaft", &[[x, y - HEAD[0]], [x, y], back]))
        .add(path("head", &[side(1.0), side(-1.0), tip]))
        .add(line("shield", [x - SHIELD, y + 1.0], [x + SHIELD, y + 1.0]))
}

/// Whether a track has a bar at a moment.
fn has_bar(view: View<'_>, track: usize, moment: usize) -> bool {
    let bars = view.story.tracks[track].bars.iter();
    bars.filter(|bar| !matches!(bar.content, Content::Belief(_)))
        .any(|bar| bar.span.start <= moment && bar.span.end.is_none_or(|end| moment <= end))
}

fn names(arrow: &Arrow) -> (&'static str, &'static str) {
    let message = match arrow.message {
        Message::Grant => "grant",
        Message::Expiry => "expiry",
        Message::Read => "read",
        Message::Write => "write",
    };
    let arrival = match arrow.arrival {
        Arrival::Lands => "lands",
        Arrival::DestroysNewer => "destroys-newer",
        Arrival::Bounces => "bounces",
    };
    (message, arrival)
}
