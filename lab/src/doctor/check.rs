//! The result of a check.

use serde::Serialize;

/// The result of a check, in the words of `fence.doctor()` in PostgreSQL.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) name: String,
    /// `None` if the check can't decide.
    pub(super) ok: Option<bool>,
    pub(super) found: String,
    /// What goes wrong if it is not ok.
    pub(super) why: String,
}

impl Check {
    pub(super) fn new(
        name: &str,
        ok: impl Into<Option<bool>>,
        found: impl Into<String>,
        why: &str,
    ) -> Self {
        Self { name: name.to_owned(), ok: ok.into(), found: found.into(), why: why.to_owned() }
    }

    /// The last check of each store: what no check sees.
    pub(super) fn unseen(why: &str) -> Self {
        Self::new("unseen", None, "not visible from here", why)
    }
}
