//! A strip: the values that a track has, one after the other, and below it the fence.

use svg::node::element::Group;

use super::{
    caption,
    frame::{FENCE_HEIGHT, Frame},
    needs::{BAR_SIZE, PADDING},
    shapes::{Area, rectangle, text},
    story::{FenceLevel, Kind, Span, Tone, Track},
    text::bold_width,
    view::View,
};

const FENCE_SIZE: f64 = 10.0;
/// How far a text's foot is from the middle of the strip.
const FOOT: f64 = 4.2;

/// Draws a track's values, and its fence if it is a storage.
pub(super) fn draw(view: View<'_>, track: &Track, frame: Frame, group: Group) -> Group {
    let group = values(view, track, frame, group);
    match &track.fence {
        Some(levels) => fence(view, levels, frame, group),
        None if track.kind == Kind::Storage => {
            let span = Span { start: 0, end: None };
            let area = fence_area(view, span, frame);
            group.add(rectangle("unfenced", area, 0.0)).add(text(
                "in-unfenced",
                FENCE_SIZE,
                fence_foot(area),
                "no fence: checks nothing",
            ))
        }
        None => group,
    }
}

fn values(view: View<'_>, track: &Track, frame: Frame, mut group: Group) -> Group {
    for (number, value) in track.values.iter().enumerate() {
        let end = track.values.get(number + 1).map(|next| next.since);
        let [left, right] = view.ends(Span { start: value.since, end });
        let area = Area { left, top: frame.bar_top, width: right - left, height: frame.bar_height };
        let tone = if value.tone == Tone::Bad { " lost" } else { "" };
        let class = format!("value {}{tone}", view.palette.class(value.token));
        let mut shape = rectangle(&class, area, 0.0).set("data-value", value.text.as_str());
        if let Some(token) = value.token {
            shape = shape.set("data-token", token.as_u64());
        }
        let foot = [left + PADDING, frame.middle() + FOOT];
        let class = format!("in-value{tone}");
        group = group.add(shape).add(text(&class, BAR_SIZE, foot, &caption::value(value)));
    }
    group
}

fn fence(view: View<'_>, levels: &[FenceLevel], frame: Frame, mut group: Group) -> Group {
    for (number, level) in levels.iter().enumerate() {
        let end = levels.get(number + 1).map(|next| next.since);
        let area = fence_area(view, Span { start: level.since, end }, frame);
        let colour = view.palette.class(Some(level.token));
        let shape = rectangle(&format!("fence {colour}"), area, 0.0);
        group = group.add(shape.set("data-token", level.token.as_u64()));
        let mut words = caption::fence(*level).into_iter();
        let fits = |words: &String| bold_width(words, FENCE_SIZE) + 2.0 * PADDING <= area.width;
        if let Some(words) = words.find(fits) {
            group = group.add(text(
                &format!("in-fence {colour}"),
                FENCE_SIZE,
                fence_foot(area),
                &words,
            ));
        }
    }
    group
}

fn fence_area(view: View<'_>, span: Span, frame: Frame) -> Area {
    let [left, right] = view.ends(span);
    Area { left, top: frame.bar_bottom(), width: right - left, height: FENCE_HEIGHT }
}

fn fence_foot(area: Area) -> [f64; 2] {
    [area.left + PADDING, area.top + area.height / 2.0 + FENCE_SIZE * 0.35]
}
