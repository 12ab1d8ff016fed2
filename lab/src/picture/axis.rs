//! The time axis below the tracks, and the quiet times on it.

use svg::node::element::Group;

use super::{
    shapes::{Area, centred_text, line, path, rectangle},
    text::{seconds, width},
    view::View,
};

/// The height of the axis with its texts.
pub(super) const HEIGHT: f64 = 24.0;
const SIZE: f64 = 10.0;
/// A time of at least so many milliseconds in which nothing happens is quiet, and drawn shorter.
const QUIET_MS: u64 = 150;

/// Draws the quiet times: bands behind the tracks.
pub(super) fn bands(view: View<'_>, [top, bottom]: [f64; 2]) -> Group {
    const MARGIN: f64 = 4.0;
    quiet(view).fold(Group::new().set("class", "bands"), |group, moment| {
        let [left, right] = [view.x(moment) + MARGIN, view.x(moment + 1) - MARGIN];
        let area = Area { left, top, width: right - left, height: bottom - top };
        group.add(rectangle("quiet", area, 0.0))
    })
}

/// Draws the axis: a line that is broken in quiet times, and ticks.
pub(super) fn draw(view: View<'_>, top: f64) -> Group {
    let mut group = Group::new().set("class", "axis");
    group = group.add(line("line", [view.left, top], [view.right(), top]));
    for moment in quiet(view) {
        let middle = f64::midpoint(view.x(moment), view.x(moment + 1));
        group = group.add(line("gap", [middle - 3.0, top], [middle + 3.0, top]));
        for x in [middle - 3.0, middle + 3.0] {
            group = group.add(path("line", &[[x - 2.5, top + 5.0], [x + 2.5, top - 5.0]]));
        }
    }
    for moment in 1..view.story.moments.len() {
        let x = view.x(moment);
        group = group.add(line("line", [x, top], [x, top + 4.0]));
    }
    for (moment, words) in ticks(view) {
        group = group.add(centred_text("tick", SIZE, [view.x(moment), top + 15.0], &words));
    }
    group
}

/// The moments with a text, and what it is: first those around quiet times.
fn ticks(view: View<'_>) -> Vec<(usize, String)> {
    const APART: f64 = 10.0;
    let count = view.story.moments.len();
    let around = quiet(view).flat_map(|moment| [moment, moment + 1]);
    let wanted = [1].into_iter().chain(around).chain([count - 1]).chain(1..count);
    let mut ticks: Vec<(usize, String)> = Vec::new();
    for moment in wanted.filter(|moment| (1..count).contains(moment)) {
        let words = format!(
            "{} s",
            seconds(view.story.moments[moment].saturating_sub(view.story.moments[0]))
        );
        let space = width(&words, SIZE);
        let is_free = ticks.iter().all(|(other, others)| {
            let apart = (view.x(*other) - view.x(moment)).abs();
            *others != words && apart >= f64::midpoint(space, width(others, SIZE)) + APART
        });
        if is_free && view.x(moment) + space / 2.0 <= view.right() + APART {
            ticks.push((moment, words));
        }
    }
    ticks
}

/// The moments before quiet times.
fn quiet(view: View<'_>) -> impl Iterator<Item = usize> {
    let moments = view.story.moments.windows(2).enumerate();
    moments
        .filter(|(_, pair)| pair[1].saturating_sub(pair[0]) >= QUIET_MS)
        .map(|(moment, _)| moment)
}
