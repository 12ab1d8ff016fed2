//! The names of the locks that ZooKeeper holds.

use std::vec;

use fence::ResourceName;
use futures_util::{future::try_join_all, stream::try_unfold};
use tokio::try_join;

use super::{client::ZooKeeper, connection::Connection, failure::Failure, paths::Paths};
use crate::backend::{BackendError, HeldNames};

const PAGE: usize = 100;

/// Lists the queues, and then reads them page by page. A queue may be empty until ZooKeeper deletes it.
///
/// The list is one message. It can carry more than 100 000 names of 30 bytes.
pub(super) fn held(zookeeper: ZooKeeper, prefix: &str) -> HeldNames {
    let prefix = prefix.to_owned();
    Box::pin(try_unfold(None, move |names: Option<vec::IntoIter<ResourceName>>| {
        let (zookeeper, prefix) = (zookeeper.clone(), prefix.clone());
        async move {
            let mut names = match names {
                Some(names) => names,
                None => zookeeper.within(list(&zookeeper, &prefix)).await?.into_iter(),
            };
            let page: Vec<_> = names.by_ref().take(PAGE).collect();
            if page.is_empty() {
                return Ok(None);
            }
            let held = zookeeper.within(held_of(&zookeeper, page)).await?;
            Ok(Some((held, Some(names))))
        }
    }))
}

/// Returns the names of all queues with this prefix, after everything that was changed until now.
async fn list(zookeeper: &ZooKeeper, prefix: &str) -> Result<Vec<ResourceName>, BackendError> {
    let queues = Paths::queues(&zookeeper.ensemble.server().root);
    let connection = zookeeper.ensemble.reading().await?;
    // The member may be behind the leader.
    let synced = connection.answer(connection.client.sync(&queues));
    // The read is behind it on the same connection.
    let (_, queues) = try_join!(synced, children_of(&connection, &queues))?;
    if queues.is_empty() {
        zookeeper.check_root().await?;
    }
    let names = queues.iter().filter_map(|child| Paths::parse_name(child));
    Ok(names.filter(|name| name.as_str().starts_with(prefix)).collect())
}

/// Returns those of the names whose queue has an owner, and those whose queue another user owns: their
/// status is an error that names the lock.
async fn held_of(
    zookeeper: &ZooKeeper,
    names: Vec<ResourceName>,
) -> Result<Vec<ResourceName>, BackendError> {
    let connection = zookeeper.ensemble.reading().await?;
    let reads = names.into_iter().map(async |name| {
        let places = match children_of(&connection, &zookeeper.paths(&name).queue()).await {
            Err(Failure::Other(BackendError::Rejected(_))) => return Ok(Some(name)),
            places => places?,
        };
        // A place that can't be read may be the owner's.
        let is_held = places.iter().any(|place| !matches!(Paths::parse(place), Ok(None)));
        Ok::<_, Failure>(is_held.then_some(name))
    });
    Ok(try_join_all(reads).await?.into_iter().flatten().collect())
}

async fn children_of(connection: &Connection, path: &str) -> Result<Vec<String>, Failure> {
    match connection.answer(connection.client.list_children(path)).await {
        Ok(children) => Ok(children),
        Err(Failure::NoNode) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}
