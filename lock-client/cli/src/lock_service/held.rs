//! The locks that are held in a lock service.

use std::{collections::HashSet, error::Error, fmt, future::ready};

use futures_util::{StreamExt, stream};
use lock_client::{
    Locks,
    backend::{BackendError, HeldNames},
};

use super::LockService;
use crate::failure::Failure;

/// The locks that are held in a lock service: with Redlock, those of each node.
#[derive(Debug)]
pub struct HeldLocks {
    locks: Locks,
    /// What lists them: each node of Redlock, and otherwise the lock service itself.
    servers: Vec<Locks>,
}

/// The URLs name no lock service. It displays as the reason, without a password.
#[derive(Debug)]
pub struct InvalidUrls(String);

impl fmt::Display for InvalidUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InvalidUrls {}

impl HeldLocks {
    /// Opens the lock service that these URLs name, as the option `--locks` takes them. It connects with
    /// its first request.
    ///
    /// # Errors
    /// [`InvalidUrls`] if they name no lock service, or several.
    pub fn open(urls: Vec<String>) -> Result<Self, InvalidUrls> {
        let service = LockService { locks: urls, ..LockService::default() };
        Self::from_service(&service)
            .map_err(|failure| InvalidUrls(failure.message().unwrap_or_default().to_owned()))
    }

    pub(crate) fn from_service(service: &LockService) -> Result<Self, Failure> {
        Ok(Self { locks: service.locks()?, servers: service.servers()? })
    }

    /// The locks themselves.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Reads the names of the locks that are held and whose names have this prefix, each once. An error is
    /// an item only if names may be missing for it: a majority of Redlock's nodes has each lock that
    /// is held.
    pub fn names(&self, prefix: &str) -> HeldNames {
        let of_servers: Vec<_> =
            self.servers.iter().map(|server| until_error(server.held_names(prefix))).collect();
        let (mut tolerated, mut seen) = ((of_servers.len() - 1) / 2, HashSet::new());
        let pages = stream::iter(of_servers).flatten().filter_map(move |page| {
            ready(match page {
                Ok(mut names) => {
                    names.retain(|name| seen.insert(name.clone()));
                    Some(Ok(names))
                }
                Err(_) if tolerated > 0 => {
                    tolerated -= 1;
                    None
                }
                Err(error) => Some(Err(error)),
            })
        });
        Box::pin(pages)
    }
}

/// The pages up to the first error.
fn until_error(pages: HeldNames) -> HeldNames {
    let pages = pages.scan(false, |has_failed, page: Result<_, BackendError>| {
        let page = (!*has_failed).then_some(page);
        *has_failed |= page.as_ref().is_some_and(Result::is_err);
        ready(page)
    });
    Box::pin(pages)
}
