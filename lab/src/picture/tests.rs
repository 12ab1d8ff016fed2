//! Pictures of a recorded run, which is in a file, and of changed ones.

use roxmltree::{Document, Node};

use super::{draw, text};
use crate::{
    record::{EventKind, RunRecord},
    scenario::{self, Scenario},
};

const RECORD: &str = include_str!("tests/token-33-34.json");
const MOST_BYTES: usize = 60_000;

fn scenario() -> &'static Scenario {
    scenario::find("token-33-34").unwrap()
}

/// The run in the file.
fn recorded() -> RunRecord {
    serde_json::from_str(RECORD).unwrap()
}

fn picture(record: &RunRecord) -> String {
    draw(record, scenario())
}

/// Checks what every picture must be, and returns its texts.
#[track_caller]
fn check(picture: &str) -> Vec<String> {
    assert!(picture.len() < MOST_BYTES, "{} bytes", picture.len());
    let document = Document::parse(picture).unwrap();
    let foreign = ["script", "image", "foreignObject", "a", "use"];
    assert!(!document.descendants().any(|node| foreign.contains(&node.tag_name().name())));
    let root = document.root_element();
    let view_box = root.attribute("viewBox").unwrap().split(' ').map(|number| number.parse());
    let view_box: Vec<f64> = view_box.map(Result::unwrap).collect();
    let texts: Vec<Node<'_, '_>> =
        document.descendants().filter(|node| node.has_tag_name("text")).collect();
    let boxes: Vec<([f64; 4], String)> = texts.iter().map(|node| text_box(*node)).collect();
    for (number, ([left, top, right, bottom], words)) in boxes.iter().enumerate() {
        let is_inside =
            *left >= 0.0 && *top >= 0.0 && *right <= view_box[2] && *bottom <= view_box[3];
        assert!(is_inside, "{words:?} is not in {view_box:?}");
        for (other, others) in &boxes[number + 1..] {
            let apart =
                *right <= other[0] || other[2] <= *left || *bottom <= other[1] || other[3] <= *top;
            assert!(apart, "{words:?} and {others:?} overlap");
        }
    }
    boxes.into_iter().map(|(_, words)| words).collect()
}

/// Where a text is at most: left, top, right and bottom.
fn text_box(node: Node<'_, '_>) -> ([f64; 4], String) {
    let words: String =
        node.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let [x, y, size] = ["x", "y", "font-size"].map(|name| number(node, name));
    let width = text::width(&words, size);
    let left = if node.attribute("text-anchor").is_some() { x - width / 2.0 } else { x };
    ([left, y - 0.75 * size, left + width, y + 0.2 * size], words)
}

fn number(node: Node<'_, '_>, attribute: &str) -> f64 {
    node.attribute(attribute).unwrap().parse().unwrap()
}

/// The elements with a class, in a world.
fn elements<'a>(document: &'a Document<'_>, world: &str, class: &str) -> Vec<Node<'a, 'a>> {
    let panel = document.descendants().find(|node| node.attribute("data-world") == Some(world));
    let has_class = |node: &Node<'_, '_>| {
        node.attribute("class").is_some_and(|classes| classes.split(' ').any(|own| own == class))
    };
    panel.unwrap().descendants().filter(has_class).collect()
}

#[test]
#[should_panic(expected = "overlap")]
fn texts_that_overlap_are_found() {
    let text = "<text x='9' y='9' font-size='8'>a text</text>";
    check(&format!("<svg viewBox='0 0 99 99'>{text}{text}</svg>"));
}

#[test]
fn picture_is_small_and_its_texts_are_inside_and_apart() {
    let texts = check(&picture(&recorded()));
    for expected in
        ["token 33", "token 34", "33 expires", "newer data lost", "rejected, stale: 33 < 34"]
    {
        assert!(texts.iter().any(|text| text == expected), "{expected:?} is in {texts:?}");
    }
}

#[test]
fn picture_is_light_or_dark_and_says_in_words_what_it_shows() {
    let picture = picture(&recorded());
    assert!(picture.contains("prefers-color-scheme: dark"));
    let document = Document::parse(&picture).unwrap();
    let text = |name: &str| {
        let element = document.descendants().find(|node| node.has_tag_name(name)).unwrap();
        element.text().unwrap().trim().to_owned()
    };
    assert_eq!(document.root_element().attribute("role"), Some("img"));
    assert_eq!(text("title"), "token-33-34");
    assert!(text("desc").starts_with(scenario().claim), "{}", text("desc"));
    assert!(text("desc").ends_with("nothing lost."), "{}", text("desc"));
}

#[test]
fn pause_is_hatched_and_runs_past_the_end_of_the_lease() {
    let picture = picture(&recorded());
    assert!(picture.contains(".pause { fill: url(#hatch)"));
    let document = Document::parse(&picture).unwrap();
    for world in ["unfenced", "fenced"] {
        let lease = elements(&document, world, "lease")[0];
        let pause = elements(&document, world, "pause")[0];
        let [lease_end, pause_end] =
            [lease, pause].map(|bar| number(bar, "x") + number(bar, "width"));
        assert!(number(lease, "x") < number(pause, "x") && number(pause, "x") < lease_end);
        assert!(lease_end < pause_end);
    }
}

#[test]
fn late_write_destroys_newer_data_without_the_fence_and_bounces_off_with_it() {
    let picture = picture(&recorded());
    let document = Document::parse(&picture).unwrap();
    let arrivals = |world: &str| {
        let writes = elements(&document, world, "write").into_iter();
        let classes = writes.map(|write| write.attribute("class").unwrap().to_owned());
        classes.collect::<Vec<_>>()
    };
    assert_eq!(arrivals("unfenced"), ["arrow write lands t1", "arrow write destroys-newer t0"]);
    assert_eq!(arrivals("fenced"), ["arrow write lands t1", "arrow write bounces t0"]);
    assert_eq!(elements(&document, "unfenced", "lost").len(), 2, "the value, and its text");
    assert_eq!(elements(&document, "fenced", "lost").len(), 0);
}

#[test]
fn stored_value_is_escaped_and_shortened() {
    let mut record = recorded();
    let value = "<script>\u{1}alert(\"'&'\")</script>";
    for event in &mut record.events {
        if let EventKind::AcceptedWrite(content)
        | EventKind::AcceptedStaleWrite(content)
        | EventKind::Written { content, .. } = &mut event.kind
        {
            content.value = Some(value.to_owned());
        }
    }
    let texts = check(&picture(&record));
    assert!(texts.iter().any(|text| text == "<script> alert(\"'… · 34"), "{texts:?}");
}

#[test]
fn run_that_did_not_show_its_claim_says_so() {
    let mut record = recorded();
    let unshown = "This run did not show it.".to_owned();
    assert!(!check(&picture(&record)).contains(&unshown));
    record.holds = false;
    assert!(check(&picture(&record)).contains(&unshown));
}

#[test]
fn of_very_many_events_those_in_the_middle_are_left_out() {
    let mut record = recorded();
    let written = record
        .events
        .iter()
        .position(|event| matches!(event.kind, EventKind::Written { .. }))
        .unwrap();
    let write = record.events[written..written + 2].to_vec();
    let many = write.iter().cycle().take(2000).cloned();
    record.events.splice(written..written, many);
    let texts = check(&picture(&record));
    assert!(texts.iter().any(|text| text.ends_with("events left out")), "{texts:?}");
}

#[test]
fn record_without_events_is_drawn() {
    let mut record = recorded();
    record.events.clear();
    check(&picture(&record));
}
