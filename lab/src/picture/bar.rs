//! Bars: leases, pauses, and waits.

use fence::Token;
use svg::node::element::Group;

use super::{
    caption,
    frame::Frame,
    needs::{self, BAR_SIZE, PADDING},
    shapes::{Area, centred_text, line, rectangle, text},
    story::{Bar, Content, Track},
    text::bold_width,
    view::View,
};

const RADIUS: f64 = 4.0;
/// How much higher a pause is than the bar that it covers.
const OVERHANG: f64 = 4.0;
/// How far a text's foot is from the middle of its bar.
const FOOT: f64 = 4.2;

/// Draws a track's bars: the pauses over the leases.
pub(super) fn draw(view: View<'_>, track: &Track, frame: Frame, group: Group) -> Group {
    let (pauses, others): (Vec<&Bar>, Vec<&Bar>) =
        track.bars.iter().partition(|bar| bar.content == Content::Pause);
    let group = others.into_iter().fold(group, |group, bar| plain(view, bar, frame, group));
    pauses.into_iter().fold(group, |group, bar| pause(view, bar, frame, group))
}

fn plain(view: View<'_>, bar: &Bar, frame: Frame, group: Group) -> Group {
    let [left, right] = view.ends(bar.span);
    let (class, token) = match bar.content {
        Content::Belief(token) => return belief(view, token, [left, right], frame, group),
        Content::Lease(token) => ("lease", token),
        Content::HeldBack(token) => ("held-back", token),
        Content::Wait | Content::Pause => ("wait", None),
    };
    let colour = view.palette.class(token);
    let area = Area { left, top: frame.bar_top, width: right - left, height: frame.bar_height };
    let mut shape = rectangle(&format!("{class} {colour}"), area, RADIUS);
    if let Some(token) = token {
        shape = shape.set("data-token", token.as_u64());
    }
    let words = caption::bar(view.story, bar);
    let group = group.add(rectangle("ground", area, RADIUS));
    let foot = [left + PADDING, frame.middle() + FOOT];
    group.add(shape).add(text(&format!("in-{class} {colour}"), BAR_SIZE, foot, &words))
}

/// A lease that only its client believes in: no bar, but a line.
fn belief(
    view: View<'_>,
    token: Option<Token>,
    [left, right]: [f64; 2],
    frame: Frame,
    group: Group,
) -> Group {
    let class = format!("belief {}", view.palette.class(token));
    group.add(line(&class, [left, frame.middle()], [right, frame.middle()]))
}

fn pause(view: View<'_>, bar: &Bar, frame: Frame, group: Group) -> Group {
    let [left, right] = view.ends(bar.span);
    let area = Area {
        left,
        top: frame.bar_top - OVERHANG,
        width: right - left,
        height: frame.bar_height + 2.0 * OVERHANG,
    };
    let words = caption::bar(view.story, bar);
    let longest = needs::longest_gap(view.story, bar);
    let middle = f64::midpoint(view.x(longest), view.x(longest + 1));
    let width = bold_width(&words, BAR_SIZE) + 2.0 * PADDING;
    let pill = Area {
        left: middle - width / 2.0,
        top: frame.bar_top + 2.0,
        width,
        height: frame.bar_height - 4.0,
    };
    group
        .add(rectangle("pause", area, RADIUS))
        .add(rectangle("pill", pill, pill.height / 2.0))
        .add(centred_text("in-pause", BAR_SIZE, [middle, frame.middle() + FOOT], &words))
}
