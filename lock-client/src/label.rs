//! The label of a client, which `status` shows beside its locks.

const LONGEST: usize = 200;

/// Replaces control characters by spaces, and cuts a long label.
pub(crate) fn printable(label: &str) -> String {
    let printable = |character: char| if character.is_control() { ' ' } else { character };
    label.chars().take(LONGEST).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_printable() {
        assert_eq!(printable("web-3\n(pid 812)"), "web-3 (pid 812)");
        assert_eq!(printable(&"ä".repeat(201)), "ä".repeat(200));
    }
}
