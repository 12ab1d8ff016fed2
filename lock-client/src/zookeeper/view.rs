//! What ZooKeeper shows of a lock.

use std::{time::Duration, vec};

use fence::{Holder, Token};
use futures_util::future::try_join_all;
use zookeeper_client::{Error, MultiReadResult, Stat};

use super::{connection::Connection, failure::Failure, nodes::Nodes};
use crate::backend::BackendError;

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

/// The place of a holder in the queue.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: String,
    pub(super) holder: Holder,
    /// The number of the change that created this node.
    created: i64,
    /// The number of the change that created the holder's first node.
    pub(super) grant: i64,
    /// The id of the session that the node belongs to.
    pub(super) session: i64,
    /// The time-out of the session.
    pub(super) lasts: Duration,
}

/// The place before that of a waiter. While it exists, the waiter does not own the lock.
#[derive(Clone, Debug)]
pub(super) struct Predecessor {
    pub(super) path: String,
    created: i64,
    /// The number of waiters before the waiter when the whole queue was read.
    pub(super) ahead: u64,
    /// The owner's time-out at that time.
    pub(super) remaining: Duration,
    /// Whether a watch has shown that the place is gone.
    pub(super) is_gone: bool,
}

impl Predecessor {
    /// Whether the place still exists.
    pub(super) async fn exists(&self, connection: &Connection) -> Result<bool, Failure> {
        if self.is_gone {
            return Ok(false);
        }
        match connection.answer(connection.client.check_stat(&self.path)).await? {
            Some(stat) => Ok(self.is_at(&stat)),
            None => Ok(false),
        }
    }

    /// Whether this is the node of the place. One that was deleted and made again is behind the waiter.
    pub(super) fn is_at(&self, stat: &Stat) -> bool {
        stat.czxid == self.created
    }
}

/// A child of a queue that was listed, and not read yet.
struct Listed {
    path: String,
    holder: Holder,
    /// The grant that an owner has kept.
    kept: Option<i64>,
}

impl View {
    /// Reads a lock as this member shows it. If nobody is in the queue, or only the node of this path,
    /// one message reads it all.
    pub(super) async fn read(
        connection: &Connection,
        nodes: &Nodes,
        own_path: Option<&str>,
    ) -> Result<Self, Failure> {
        loop {
            if let Some(view) = Self::try_read(connection, nodes, own_path).await? {
                return Ok(view);
            }
        }
    }

    /// Returns `None` if a child was deleted meanwhile: it may have moved to another node, which is not
    /// among the children that were listed.
    async fn try_read(
        connection: &Connection,
        nodes: &Nodes,
        own_path: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        // 1. List the queue. The offset is always the last.
        let offset = nodes.offset();
        let first = own_path.into_iter().chain([offset.as_str()]).collect::<Vec<_>>();
        let mut results = read(connection, Some(&nodes.queue()), &first).await?;
        let children = match results.next() {
            Some(MultiReadResult::Children { children }) => children,
            // An empty queue may have been deleted.
            Some(MultiReadResult::Error { err: Error::NoNode }) => Vec::new(),
            other => return Err(connection.unexpected(other)),
        };
        let listed = Listed::parse(nodes, &children)?;
        // 2. Read what was listed, unless that was the one node that was guessed.
        if listed.iter().any(|place| Some(place.path.as_str()) != own_path) {
            let paths = listed.iter().map(|place| place.path.as_str());
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
        for Listed { path, holder, kept } in listed {
            let Some((data, stat)) = node()? else { return Ok(None) };
            let lasts = Duration::from_millis(number(&data)?);
            let grant = kept.unwrap_or(stat.czxid);
            let (created, session) = (stat.czxid, stat.ephemeral_owner);
            queue.push(Place { path, holder, created, grant, session, lasts });
        }
        queue.sort_by_key(|place| place.grant);
        let (offset, offset_version) = match node()? {
            Some((data, stat)) => (number(&data)?, Some(stat.version)),
            None => (0, None),
        };
        Ok(Some(Self { queue, offset, offset_version }))
    }

    /// The place of the owner. It is the oldest of the queue.
    pub(super) fn owner(&self) -> Option<&Place> {
        self.queue.first()
    }

    /// The owner, if it is this holder with this grant.
    ///
    /// A place that exists, but is not the oldest, is no owner's. A ZooKeeper that was restored may
    /// have an older place again.
    pub(super) fn owner_if(&self, holder: &Holder, grant: i64) -> Option<&Place> {
        self.owner().filter(|owner| owner.holder == *holder && owner.grant == grant)
    }

    /// Returns how many places are older than this holder's; `None` if it has none.
    pub(super) fn position(&self, holder: &Holder) -> Option<usize> {
        self.queue.iter().position(|place| place.holder == *holder)
    }

    /// Returns the place before this holder's; `None` if it has none, or is the owner.
    pub(super) fn predecessor(&self, holder: &Holder) -> Option<Predecessor> {
        let ahead = self.position(holder)?.checked_sub(1)?;
        let Place { path, created, .. } = &self.queue[ahead];
        Some(Predecessor {
            path: path.clone(),
            created: *created,
            // The oldest place is no waiter's.
            ahead: ahead.try_into().expect("a queue is short"),
            remaining: self.queue[0].lasts,
            is_gone: false,
        })
    }

    pub(super) fn place(&self, holder: &Holder) -> Option<&Place> {
        self.queue.iter().find(|place| place.holder == *holder)
    }

    /// The token of an owner.
    pub(super) fn token(&self, owner: &Place) -> Result<Token, BackendError> {
        token(owner.grant.saturating_add(self.offset))
    }
}

impl Listed {
    /// Returns those of the children that are places.
    fn parse(nodes: &Nodes, children: &[String]) -> Result<Vec<Self>, Failure> {
        let queue = nodes.queue();
        let parsed = children.iter().map(|child| {
            let place = Nodes::parse(child)?;
            Ok(place.map(|(holder, kept)| Self { path: format!("{queue}/{child}"), holder, kept }))
        });
        parsed.filter_map(Result::transpose).collect()
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

/// Parses a number that a node holds.
fn number<T: std::str::FromStr>(data: &[u8]) -> Result<T, Failure> {
    let parsed = str::from_utf8(data).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(Failure::foreign)
}

/// Makes a token of a number.
pub(super) fn token(number: i64) -> Result<Token, BackendError> {
    Token::try_from(number).map_err(|invalid| BackendError::Rejected(invalid.to_string().into()))
}
