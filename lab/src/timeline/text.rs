//! Sentences broken into lines.

/// A sentence over the whole width.
pub fn paragraph(sentence: &str, width: usize) -> String {
    wrapped(sentence, width).join("\n")
}

/// Breaks a sentence into lines of at most so many characters.
pub(super) fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
