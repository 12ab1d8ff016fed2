use std::collections::HashSet;

use super::*;

const RECORD: &str = include_str!("../../tests/replay/token-33-34.json");
const MOST_BYTES: usize = 300_000;
/// The parts of the page that the lab serves have fewer lines, and fewer bytes.
const MOST_LINES_OF_PARTS: usize = 2_500;
const MOST_BYTES_OF_PARTS: usize = 200_000;

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

#[test]
fn file_is_small_needs_no_other_and_allows_only_its_own_script_and_style() {
    let page = file(Some(&serde_json::from_str(RECORD).unwrap()));
    assert!(page.len() < MOST_BYTES, "{} bytes", page.len());
    assert!(!page.contains("src=") && !page.contains("url(http"), "it loads nothing");
    let policy = between(&page, "Content-Security-Policy\" content=\"", "\"");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    let script = between(&page, "<script type=\"module\">", "</script>");
    let style = between(&page, "<style>", "</style>");
    for part in [script, style] {
        assert!(policy.contains(&hash(part)), "{policy}");
        assert!(!policy.contains(&hash(&format!("{part} "))), "another text has another hash");
    }
}

#[test]
fn value_that_looks_like_markup_stays_in_its_json() {
    const HOSTILE: &str = "</script><img src=x onerror=alert(1)><!--<script>";
    let mut record: Value = serde_json::from_str(RECORD).unwrap();
    let events = record["events"].as_array_mut().unwrap();
    let written = events.iter_mut().find(|event| event["event"] == "written").unwrap();
    written["value"] = HOSTILE.into();
    let page = file(Some(&serde_json::from_value(record.clone()).unwrap()));
    assert!(!page.contains("<img"), "it is no markup");
    let data = between(&page, "id=\"data\">", "</script>");
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["record"], record);
    assert_eq!(data["scenarios"][0]["name"], "token-33-34");
}

#[test]
fn parts_are_few_lines_and_few_bytes() {
    let parts = MODULES.into_iter().chain([BODY, STYLE]);
    let lines: usize = parts.map(|part| part.lines().count()).sum();
    assert!(lines < MOST_LINES_OF_PARTS, "{lines} lines");
    let bytes = served().len() + script().len() + STYLE.len();
    assert!(bytes < MOST_BYTES_OF_PARTS, "{bytes} bytes");
}

/// How bright a colour of the style is, as WCAG 2 defines it.
fn luminance(color: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
}

/// axe-core can't judge what is drawn. Shapes need a contrast of 3, and words one of 4.5.
#[test]
fn colors_of_tokens_are_seen_and_their_words_are_read_in_light_and_in_dark() {
    let (light, dark) = STYLE.split_once("@media (prefers-color-scheme: dark)").unwrap();
    for (scheme, style) in [("light", light), ("dark", dark)] {
        let bright = |name: &str| luminance(&between(style, &format!("--{name}: #"), ";")[..6]);
        let contrast = |one: &str, other: &str| {
            let [one, other] = [one, other].map(bright);
            (one.max(other) + 0.05) / (one.min(other) + 0.05)
        };
        for token in ["t0", "t1", "t2", "t3", "t4", "tn"] {
            let [seen, read] = [contrast(token, "card"), contrast(token, &format!("{token}-ink"))];
            assert!(seen >= 3.0 && read >= 4.5, "{scheme}, {token}: {seen:.2}, {read:.2}");
        }
        for words in ["ink", "muted", "bad", "good", "odd"] {
            let read = contrast(words, "card").min(contrast(words, "page"));
            assert!(read >= 4.5, "{scheme}, {words}: {read:.2}");
        }
    }
}

/// As one script, the modules share their names.
#[test]
fn no_two_modules_declare_one_name_and_each_imports_only_earlier_ones() {
    let mut names = HashSet::new();
    for module in MODULES {
        let imported = module.lines().filter(|line| line.starts_with("import "));
        for name in imported.flat_map(|line| between(line, "{ ", " }").split(", ")) {
            assert!(names.contains(name), "{name} is declared before it is imported");
        }
        for line in module.lines() {
            let line = line.strip_prefix("export ").unwrap_or(line);
            let declared = ["const ", "let ", "class ", "function ", "async function "]
                .iter()
                .find_map(|keyword| line.strip_prefix(keyword));
            let Some(declared) = declared.filter(|rest| !rest.starts_with('{')) else { continue };
            let end = declared.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let name = &declared[..end.unwrap_or(declared.len())];
            assert!(names.insert(name), "{name} is declared twice");
        }
    }
}
