//! Texts: how wide they are, and how they become short enough.

/// How much wider bold text is.
pub(super) const BOLD: f64 = 1.13;

/// The width of a text of this size in a wide sans-serif font, such as DejaVu Sans.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|character| size * em(character)).sum()
}

/// The same, for bold text.
pub(super) fn bold_width(text: &str, size: f64) -> f64 {
    width(text, size) * BOLD
}

fn em(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.29,
        'f' | 't' | 'r' | ' ' | '(' | ')' | '-' | '/' | '`' => 0.37,
        'm' | 'w' | 'M' | 'W' | '<' | '>' | '=' | '+' | '%' => 0.9,
        '0'..='9' => 0.64,
        'A'..='Z' => 0.7,
        character if character.is_ascii() => 0.585,
        _ => 1.0,
    }
}

/// Breaks a text into lines that are at most this wide.
pub(super) fn wrapped(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A text of at most this many characters, none of them a control character.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let printable = |character: char| if character.is_control() { ' ' } else { character };
    if text.chars().count() <= most {
        return text.chars().map(printable).collect();
    }
    text.chars().take(most - 1).map(printable).chain(['…']).collect()
}

/// A time in seconds, with two decimals.
pub(super) fn seconds(millis: u64) -> String {
    format!("{}.{:02}", millis / 1000, millis % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_ends_in_an_ellipsis_and_control_characters_become_spaces() {
        assert_eq!(shortened("by client 1", 16), "by client 1");
        assert_eq!(shortened("a\u{1}b\nc", 16), "a b c");
        assert_eq!(shortened("abcdef", 4), "abc…");
    }

    #[test]
    fn lines_are_no_wider_than_asked() {
        let lines = wrapped("one two three four five six", 10.0, 60.0);
        assert!(lines.len() > 1);
        assert!(lines.iter().all(|line| width(line, 10.0) <= 60.0), "{lines:?}");
    }
}
