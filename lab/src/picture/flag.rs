//! Flags: a few words above a track, on a pole that stands at their moment.

use svg::node::element::Group;

use super::{
    frame::Frame,
    rows::SIZE,
    shapes::{dot, line, text},
    story::{Kind, Tone},
    view::View,
};

/// How far a pole is longer than its flag's foot is high.
const TOP: f64 = 9.0;

/// Draws the flags of a track.
pub(super) fn draw(view: View<'_>, track: usize, frame: Frame, mut group: Group) -> Group {
    let is_service = view.story.tracks[track].kind == Kind::LockService;
    for placed in &view.layout.flags[track] {
        let flag = &placed.flag;
        let (x, foot) = (view.x(flag.at), frame.baseline(placed.row));
        let is_point = is_service && view.story.tracks[track].values.is_empty();
        let pole_foot = if is_point { frame.middle() } else { frame.bar_top };
        group = group.add(line(&class("pole", flag.tone), [x, foot - TOP], [x, pole_foot]));
        if is_point {
            group = group.add(dot(&class("dot", flag.tone), [x, frame.middle()], 3.5));
        }
        group =
            group.add(text(&class("flag", flag.tone), SIZE, [x + placed.indent, foot], &flag.text));
    }
    group
}

/// A class, and that of its tone.
pub(super) fn class(class: &str, tone: Tone) -> String {
    let tone = match tone {
        Tone::Plain => return class.to_owned(),
        Tone::Good => "good",
        Tone::Odd => "odd",
        Tone::Bad => "bad",
    };
    format!("{class} {tone}")
}
