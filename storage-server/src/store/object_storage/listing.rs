//! The list of resources.

use std::{collections::BTreeSet, time::Duration};

use fence::ResourceName;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    ObjectStorage,
    reading::{decode, read_error},
};
use crate::store::{
    error::{ANSWER_TIMEOUT, ReadError, Unreachable, no_answer, object_storage_failed},
    list::{Listed, Listing, Page},
};

/// How long a list may take: it reads the names of all resources, and each register of the page.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// How many registers of a page are read at once.
const CONCURRENT_READS: usize = 16;

impl ObjectStorage {
    /// Reads the names of all resources, because their objects are not in the order of the names. Then reads
    /// the registers of the page. They are of one moment each.
    pub(super) async fn list_page(&self, page: &Page) -> Result<Listing, Unreachable> {
        let place = timeout(ANSWER_TIMEOUT, self.places.of_list()).await;
        let _place = place.map_err(|_| no_answer(ANSWER_TIMEOUT))?;
        let end = Instant::now() + LIST_TIMEOUT;
        let names = timeout_at(end, self.registers.resources()).await;
        let names = names.map_err(|_| no_answer(LIST_TIMEOUT))?.map_err(object_storage_failed)?;
        let range = page.range();
        let range = &*range.start..&*range.end;
        let is_in_page = |name: &ResourceName| range.contains(&name.as_str());
        let names: BTreeSet<_> = names.into_iter().filter(is_in_page).collect();

        let mut listing = Listing::default();
        let mut found = stream::iter(names)
            .map(|name| async move { (self.listed(&name).await, name) })
            .buffered(CONCURRENT_READS);
        while listing.resources.len() < page.limit as usize {
            // Deleted resources keep their registers. If there are many, the next page goes on here.
            let Ok(next) = timeout_at(end, found.next()).await else {
                if listing.unfinished_after.is_none() {
                    return Err(no_answer(LIST_TIMEOUT).into());
                }
                return Ok(listing);
            };
            let Some((found, name)) = next else { break };
            match found {
                Ok(found) => listing.resources.extend(found),
                Err(ReadError::Unreadable(error)) => {
                    tracing::error!("left out of a list: {error}");
                }
                Err(ReadError::Unreachable(error)) => return Err(error),
            }
            listing.unfinished_after = Some(name);
        }
        listing.unfinished_after = None;
        Ok(listing)
    }

    /// The resource as it is in a list, if it has a value.
    async fn listed(&self, resource: &ResourceName) -> Result<Option<Listed>, ReadError> {
        let mut register = self.handles.new_register(resource);
        let snapshot = register.snapshot().await;
        self.handles.note_seen(resource, &register);
        let snapshot = snapshot.map_err(|error| read_error(resource, error))?;
        let record = decode(&snapshot, resource)?;
        Ok(record.described().map(|described| Listed {
            resource: resource.clone(),
            token: described.written_with().map(|fence| fence.token),
            version: record.version(),
            size: described.bytes,
        }))
    }
}
