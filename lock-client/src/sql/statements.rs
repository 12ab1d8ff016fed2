//! What a request sends.

/// Statements that are sent as one message, and answered with one row.
#[derive(Clone)]
pub(crate) struct Statements {
    pub(crate) sql: String,
    /// The values of `?1`, `?2` and so on. With them, the statements stay prepared on their connection.
    /// Without any, nothing is prepared, as PgBouncer needs it.
    pub(crate) arguments: Vec<String>,
}

impl From<String> for Statements {
    fn from(sql: String) -> Self {
        Self { sql, arguments: Vec::new() }
    }
}
