//! The names of the locks that a database holds.

use fence::ResourceName;
use futures_util::stream::try_unfold;

use super::answer::InvalidAnswer;
use crate::backend::{BackendError, HeldNames};

/// Reads page after page. A query returns the names that follow a name in their order, each on a line
/// of its own; `None` at the end. All names are in hexadecimal digits, because a foreign row may have a
/// name with a line break, or one that is no text.
pub(crate) fn pages<F>(query: impl Fn(String) -> F + Send + 'static) -> HeldNames
where
    F: Future<Output = Result<Option<String>, BackendError>> + Send + 'static,
{
    Box::pin(try_unfold(String::new(), move |after| {
        let page = query(after.clone());
        async move {
            let Some(lines) = page.await? else { return Ok(None) };
            let last = lines.lines().next_back().unwrap_or_default().to_owned();
            if last == after {
                let reason = "the names of the held locks are not in their order";
                return Err(BackendError::Rejected(reason.into()));
            }
            let page = names(&lines).map_err(BackendError::Rejected)?;
            Ok(Some((page, last)))
        }
    }))
}

/// Decodes names. A row that another program wrote may have a name that no lock has: it is left out.
fn names(lines: &str) -> Result<Vec<ResourceName>, InvalidAnswer> {
    let names: Vec<_> = lines.lines().map(decoded).collect::<Result<_, _>>()?;
    Ok(names.into_iter().filter_map(|name| String::from_utf8(name).ok()?.parse().ok()).collect())
}

fn decoded(digits: &str) -> Result<Vec<u8>, InvalidAnswer> {
    let byte = |pair: &[u8]| Ok(u8::from_str_radix(str::from_utf8(pair)?, 16)?);
    digits.as_bytes().chunks(2).map(byte).collect()
}
