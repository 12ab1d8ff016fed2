//! The few shapes that the picture consists of, with rounded coordinates.

use svg::node::element::{Circle, Path, Rectangle, Text};

/// A rectangle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

pub(super) fn rectangle(class: &str, area: Area, radius: f64) -> Rectangle {
    Rectangle::new()
        .set("class", class)
        .set("x", rounded(area.left))
        .set("y", rounded(area.top))
        .set("width", rounded(area.width.max(0.0)))
        .set("height", rounded(area.height))
        .set("rx", radius)
}

pub(super) fn line(class: &str, from: [f64; 2], to: [f64; 2]) -> Path {
    path(class, &[from, to])
}

/// Straight lines from point to point.
pub(super) fn path(class: &str, points: &[[f64; 2]]) -> Path {
    let points = points.iter().map(|[x, y]| format!("{} {}", rounded(*x), rounded(*y)));
    let data = format!("M{}", points.collect::<Vec<_>>().join("L"));
    Path::new().set("class", class).set("d", data)
}

pub(super) fn dot(class: &str, [x, y]: [f64; 2], radius: f64) -> Circle {
    Circle::new().set("class", class).set("cx", rounded(x)).set("cy", rounded(y)).set("r", radius)
}

/// A text of this size that begins here.
pub(super) fn text(class: &str, size: f64, [x, y]: [f64; 2], words: &str) -> Text {
    Text::new(words)
        .set("class", class)
        .set("font-size", size)
        .set("x", rounded(x))
        .set("y", rounded(y))
}

/// A text of this size whose middle is here.
pub(super) fn centred_text(class: &str, size: f64, point: [f64; 2], words: &str) -> Text {
    text(class, size, point, words).set("text-anchor", "middle")
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
