//! Pictures of real runs.

use std::fs;

use lab::{
    picture,
    record::{EventKind, RunRecord},
    scenario,
};
use roxmltree::{Document, Node};
use serde_json::Value;
use tempfile::TempDir;

use super::{REPLAY, lab, replayed};

const STORED: &str = include_str!("../../../docs/token-33-34.svg");
const MOST_BYTES: usize = 60_000;

pub(super) fn drawn(record: &RunRecord) -> String {
    picture::draw(record, scenario::find(&record.scenario).unwrap())
}

/// Checks that a picture is small, that nothing in it runs, and that its texts are inside and
/// apart.
#[track_caller]
pub(super) fn assert_readable(picture: &str) {
    assert!(picture.len() < MOST_BYTES, "{} bytes", picture.len());
    let document = Document::parse(picture).unwrap();
    assert!(!document.descendants().any(|node| node.has_tag_name("script")));
    let view_box = document.root_element().attribute("viewBox").unwrap();
    let size: Vec<f64> = view_box.split(' ').map(|number| number.parse().unwrap()).collect();
    let texts: Vec<(String, [f64; 4])> =
        document.descendants().filter(|node| node.has_tag_name("text")).map(text_box).collect();
    for (number, (text, [left, top, right, bottom])) in texts.iter().enumerate() {
        let is_inside = *left >= 0.0 && *top >= 0.0 && *right <= size[2] && *bottom <= size[3];
        assert!(is_inside, "{text:?} is in {size:?}");
        for (other, others) in &texts[number + 1..] {
            let beside = *right <= others[0] || others[2] <= *left;
            let below = *bottom <= others[1] || others[3] <= *top;
            assert!(beside || below, "{text:?} and {other:?} are apart");
        }
    }
}

/// A text, and about where it is: left, top, right and bottom.
fn text_box(node: Node<'_, '_>) -> (String, [f64; 4]) {
    let text = words(node);
    let [x, y, size] = ["x", "y", "font-size"].map(|name| number(node, name));
    let width = text.chars().map(|_| 0.5 * size).sum::<f64>();
    let left = if node.attribute("text-anchor").is_some() { x - width / 2.0 } else { x };
    (text, [left, y - 0.75 * size, left + width, y + 0.2 * size])
}

/// What a picture shows, without any coordinates: a line for each thing, in order.
fn outline(picture: &str) -> Vec<String> {
    let document = Document::parse(picture).unwrap();
    let panels = document.descendants().filter(|node| has_class(*node, "panel"));
    let things = panels.flat_map(|panel| panel.descendants());
    things.filter_map(|node| thing(node)).collect()
}

fn thing(node: Node<'_, '_>) -> Option<String> {
    let own = |name: &str| node.attribute(name).unwrap_or_default().to_owned();
    let classes = own("class");
    Some(match classes.split(' ').next()? {
        "panel" => format!("panel {}", own("data-world")),
        "verdict" => format!("{classes}: {}", words(node)),
        "track" => format!("track {}", own("data-actor")),
        "pause" => {
            let track = node.parent().unwrap();
            let mut leases = track.children().filter(|other| has_class(*other, "lease"));
            let end = |bar: Node<'_, '_>| number(bar, "x") + number(bar, "width");
            let is_past = leases.any(|lease| {
                (number(lease, "x")..end(lease)).contains(&number(node, "x"))
                    && end(node) > end(lease)
            });
            format!("pause{}", if is_past { ", past the end of a lease" } else { "" })
        }
        "lease" | "belief" | "fence" | "unfenced" => format!("{classes} {}", own("data-token")),
        "value" => format!("{classes}: {} {}", own("data-value"), own("data-token")),
        "arrow" => format!(
            "{classes}: {} from {} to {}",
            own("data-token"),
            own("data-from"),
            own("data-to")
        ),
        // A flag without a tone is left out where there is no space.
        "flag" if classes.contains(' ') => format!("{classes}: {}", words(node)),
        _ => return None,
    })
}

fn has_class(node: Node<'_, '_>, class: &str) -> bool {
    node.attribute("class").is_some_and(|classes| classes.split(' ').any(|own| own == class))
}

fn words(node: Node<'_, '_>) -> String {
    let texts = node.descendants().filter(|node| node.is_text()).filter_map(|node| node.text());
    texts.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

fn number(node: Node<'_, '_>, attribute: &str) -> f64 {
    node.attribute(attribute).unwrap().parse().unwrap()
}

#[tokio::test]
async fn stored_picture_of_33_and_34_is_that_of_a_run() {
    let mut record: RunRecord = serde_json::from_value(replayed("token-33-34").await).unwrap();
    let stored = outline(STORED);
    let again = "draw it again: target/debug/lab replay token-33-34 --svg docs/token-33-34.svg";
    assert_eq!(outline(&drawn(&record)), stored, "{again}");
    assert_readable(STORED);

    // The parts that make the picture worth having are among those that were compared.
    for part in [
        "pause, past the end of a lease",
        "arrow write destroys-newer t0: 33 from client 1 to storage",
        "arrow write bounces t0: 33 from client 1 to storage",
        "flag good: rejected, stale: 33 < 34",
        "value t1: by client 2 34",
    ] {
        assert!(stored.iter().any(|thing| thing == part), "{part:?} is in {stored:#?}");
    }
    // A run in which nothing was rejected looks different.
    record.events.retain(|event| !matches!(event.kind, EventKind::Rejected(_)));
    assert_ne!(outline(&drawn(&record)), stored);
}

#[tokio::test]
async fn run_is_drawn_into_a_file_beside_its_record() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run.svg");
    let file = path.to_str().unwrap();
    let output =
        lab(&[&REPLAY[..], &["redlock-lost-reply", "--json", "--svg", file]].concat()).await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["scenario"], "redlock-lost-reply");
    let things = outline(&fs::read_to_string(&path).unwrap());
    let panels: Vec<_> = things.iter().filter(|thing| thing.starts_with("panel")).collect();
    assert_eq!(panels, ["panel where-granted", "panel everywhere"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn file_that_cannot_be_written_is_an_error_before_the_run() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("none/run.svg");
    let output = lab(&[&REPLAY[..], &["--svg", path.to_str().unwrap()]].concat()).await;
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("no folder"), "{error}");
    assert!(output.stdout.is_empty(), "it did not run");
}
