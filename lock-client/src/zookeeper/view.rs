//! What ZooKeeper shows of a lock.

use std::{time::Duration, vec};

use fence::{Holder, Token};
use futures_util::future::try_join_all;
use tokio::try_join;
use zookeeper_client::{Error, MultiReadResult};

use super::{connection::Connection, failure::Failure, paths::Paths};
use crate::{
    backend::{BackendError, Ownership, token},
    ttl::Ttl,
};

/// How many nodes one message reads. With the longest paths, it has half of the 1 MiB that a server
/// takes.
const MOST_READS: usize = 256;

/// What ZooKeeper shows of a lock. The queue was listed first, and the offset was read last. If a node
/// was listed and is gone when it is read, the look starts again.
#[derive(Debug)]
pub(super) struct View {
    /// The owner's place, and those of the waiters, the oldest first.
    pub(super) queue: Vec<Place>,
    offset: i64,
    /// The version of the offset's node; `None` if there is none.
    pub(super) offset_version: Option<i32>,
}

#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: String,
    pub(super) holder: Holder,
    /// The number of the change that created the holder's first node.
    pub(super) grant: i64,
    pub(super) session: i64,
    pub(super) lasts: Duration,
}

/// The place before that of a waiter. While it exists, the waiter does not own the lock.
#[derive(Clone, Debug)]
pub(super) struct Before {
    pub(super) path: String,
    /// The number of waiters before the waiter when the whole queue was read.
    pub(super) ahead: u64,
    /// The owner's time-out at that time.
    pub(super) remaining: Duration,
}

impl View {
    /// Reads a lock as this member shows it. If nobody is in the queue, or only the node of this path,
    /// one message reads it all.
    pub(super) async fn read(
        connection: &Connection,
        paths: &Paths,
        own_path: Option<&str>,
    ) -> Result<Self, Failure> {
        loop {
            if let Some(view) = Self::try_read(connection, paths, own_path).await? {
                return Ok(view);
            }
        }
    }

    /// Reads a lock, after everything that was changed until now: the member may be behind the leader.
    pub(super) async fn read_synced(
        connection: &Connection,
        paths: &Paths,
    ) -> Result<Self, Failure> {
        let synced = connection.answer(connection.client.sync(&paths.queue()));
        // The reads are behind it on the same connection.
        let (_, view) = try_join!(synced, Self::read(connection, paths, None))?;
        Ok(view)
    }

    /// Reads a lock behind a write, before the client reports that a holder lacks it. A leader that was
    /// just replaced answers a `sync`, but no write.
    pub(super) async fn read_behind_write(
        connection: &Connection,
        paths: &Paths,
    ) -> Result<Self, Failure> {
        // It changes nothing. A check that fails goes through a quorum, too.
        match connection.check(&paths.queue()).await {
            Ok(()) | Err(Failure::NoNode) => Self::read(connection, paths, None).await,
            Err(failure) => Err(failure),
        }
    }

    /// Reads a lock. If it does not show this ownership, it is read again behind a write.
    pub(super) async fn read_for(
        connection: &Connection,
        paths: &Paths,
        ownership: &Ownership,
    ) -> Result<Self, Failure> {
        let seen = Self::read_synced(connection, paths).await?;
        match seen.owner_if(ownership) {
            Some(_) => Ok(seen),
            None => Self::read_behind_write(connection, paths).await,
        }
    }

    /// Returns `None` if a child was deleted meanwhile: it may have moved to another node, which is not
    /// among the children that were listed.
    async fn try_read(
        connection: &Connection,
        paths: &Paths,
        own_path: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        // 1. List the queue. The offset is always the last.
        let (queue, offset) = (paths.queue(), paths.offset());
        let first = own_path.into_iter().chain([offset.as_str()]).collect::<Vec<_>>();
        let mut results = read(connection, Some(&queue), &first).await?;
        let children = match results.next() {
            Some(MultiReadResult::Children { children }) => children,
            // An empty queue may have been deleted.
            Some(MultiReadResult::Error { err: Error::NoNode }) => Vec::new(),
            other => return Err(connection.unexpected(other)),
        };
        let mut listed = Vec::with_capacity(children.len());
        for child in &children {
            if let Some(holder) = Paths::parse(child)? {
                listed.push((format!("{queue}/{child}"), holder));
            }
        }
        // 2. Read what was listed, unless that was the one node that was guessed.
        if listed.iter().any(|(path, _)| Some(path.as_str()) != own_path) {
            let paths = listed.iter().map(|(path, _)| path.as_str());
            let paths = paths.chain([offset.as_str()]).collect::<Vec<_>>();
            results = read(connection, None, &paths).await?;
        } else if own_path.is_some() && listed.is_empty() {
            results.next();
        }
        let mut node = || match results.next() {
            Some(MultiReadResult::Data { data, stat }) => Ok(Some((data, stat))),
            Some(MultiReadResult::Error { err: Error::NoNode }) => Ok(None),
            other => Err(connection.unexpected(other)),
        };
        let mut queue = Vec::with_capacity(listed.len());
        for (path, holder) in listed {
            let Some((data, stat)) = node()? else { return Ok(None) };
            let (lasts, kept) = parse_record(&data)?;
            let (grant, session) = (kept.unwrap_or(stat.czxid), stat.ephemeral_owner);
            queue.push(Place { path, holder, grant, session, lasts });
        }
        queue.sort_by_key(|place| place.grant);
        let (offset, offset_version) = match node()? {
            Some((data, stat)) => (number(text(&data)?)?, Some(stat.version)),
            None => (0, None),
        };
        Ok(Some(Self { queue, offset, offset_version }))
    }

    /// The place of the owner. It is the oldest of the queue.
    pub(super) fn owner(&self) -> Option<&Place> {
        self.queue.first()
    }

    /// The owner, if the lock is this ownership's.
    ///
    /// A place that exists, but is not the oldest, is no owner's. A ZooKeeper that was restored may
    /// have an older place again.
    pub(super) fn owner_if(&self, ownership: &Ownership) -> Option<&Place> {
        let Ownership { holder, grant } = ownership;
        self.owner().filter(|owner| owner.holder == *holder && owner.grant == grant.as_i64())
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.queue.iter().any(|place| place.path == path)
    }

    /// Returns the place before that of a path; `None` if that is the owner's, or does not exist.
    pub(super) fn before(&self, path: &str) -> Option<Before> {
        let ahead = self.queue.iter().position(|place| place.path == path)?.checked_sub(1)?;
        Some(Before {
            path: self.queue[ahead].path.clone(),
            // The oldest place is no waiter's.
            ahead: ahead.try_into().expect("a queue is short"),
            remaining: self.queue[0].lasts,
        })
    }

    pub(super) fn token(&self, owner: &Place) -> Result<Token, BackendError> {
        token(owner.grant.saturating_add(self.offset))
    }
}

/// Lists a queue, and reads nodes behind it, one after the other. All is sent at once.
async fn read(
    connection: &Connection,
    queue: Option<&str>,
    paths: &[&str],
) -> Result<vec::IntoIter<MultiReadResult>, Failure> {
    let parts = paths.chunks(MOST_READS).enumerate().map(|(number, part)| {
        let mut reader = connection.client.new_multi_reader();
        let filled =
            queue.filter(|_| number == 0).map_or(Ok(()), |queue| reader.add_get_children(queue));
        let filled = part.iter().fold(filled, |filled, path| filled.and(reader.add_get_data(path)));
        let answer = connection.answer(reader.commit());
        async {
            filled.map_err(|error| connection.failed(error))?;
            answer.await
        }
    });
    // All parts are sent here.
    let parts: Vec<_> = parts.collect();
    Ok(try_join_all(parts).await?.into_iter().flatten().collect::<Vec<_>>().into_iter())
}

/// What the node of a holder holds: the time-out of its session, and the grant if it has replaced another.
pub(super) fn record(ttl: Ttl, kept: Option<i64>) -> String {
    match kept {
        Some(grant) => format!("{} {grant}", ttl.as_millis()),
        None => ttl.as_millis().to_string(),
    }
}

fn parse_record(data: &[u8]) -> Result<(Duration, Option<i64>), Failure> {
    let text = text(data)?;
    let (millis, kept) = match text.split_once(' ') {
        Some((millis, grant)) => (millis, Some(number(grant)?)),
        None => (text, None),
    };
    Ok((Duration::from_millis(number(millis)?), kept))
}

fn text(data: &[u8]) -> Result<&str, Failure> {
    str::from_utf8(data).map_err(|_| Failure::foreign())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::foreign())
}
