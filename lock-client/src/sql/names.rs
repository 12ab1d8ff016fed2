//! The names of the locks that a database holds.

use fence::ResourceName;
use futures_util::stream::try_unfold;

use super::answer::InvalidAnswer;
use crate::backend::{BackendError, HeldNames};

/// Reads page after page. A query returns the names that follow a name, each on a line of its own;
/// `None` at the end.
pub(crate) fn pages<F>(query: impl Fn(String) -> F + Send + 'static) -> HeldNames
where
    F: Future<Output = Result<Option<String>, BackendError>> + Send + 'static,
{
    Box::pin(try_unfold(String::new(), move |after| {
        let page = query(after);
        async move {
            let Some(lines) = page.await? else { return Ok(None) };
            let page = names(&lines).map_err(BackendError::Rejected)?;
            let last = page.iter().map(ResourceName::as_str).max().unwrap_or_default().to_owned();
            Ok(Some((page, last)))
        }
    }))
}

fn names(lines: &str) -> Result<Vec<ResourceName>, InvalidAnswer> {
    Ok(lines.lines().map(str::parse).collect::<Result<_, _>>()?)
}
