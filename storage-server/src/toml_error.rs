//! Why a text is not the TOML that is wanted.

/// The line of an error, and its message. The text itself, which may hold secrets, is not shown.
pub(crate) fn line_and_message(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start);
    let line = text.get(..start).unwrap_or_default().matches('\n').count() + 1;
    format!("line {line}: {}", error.message())
}
