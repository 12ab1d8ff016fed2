//! Sentences broken into lines.

/// A space at which a line is not broken, unless a line would be too long.
const NO_BREAK: char = '\u{a0}';

/// A sentence over the whole width.
pub fn paragraph(sentence: &str, width: usize) -> String {
    wrapped(sentence, width).join("\n")
}

/// A value in quotes, in one line if it fits.
pub(super) fn quoted(value: &str) -> String {
    format!("'{}'", value.replace(' ', &NO_BREAK.to_string()))
}

/// Breaks a sentence into lines of at most this many characters.
pub(super) fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    for unbroken in sentence.split(' ') {
        let breaks = if length(unbroken) > width { NO_BREAK } else { ' ' };
        for word in unbroken.split(breaks).map(|word| word.replace(NO_BREAK, " ")) {
            match lines.last_mut() {
                Some(line) if length(line) + 1 + length(&word) <= width => {
                    *line += " ";
                    *line += &word;
                }
                _ => lines.push(word),
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_value_is_broken_only_if_it_does_not_fit() {
        let sentence = format!("writes {}", quoted("by client 1"));
        assert_eq!(wrapped(&sentence, 16), ["writes", "'by client 1'"]);
        assert_eq!(wrapped(&sentence, 12), ["writes 'by", "client 1'"]);
    }
}
