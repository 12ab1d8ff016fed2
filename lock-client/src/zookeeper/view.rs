//! What ZooKeeper shows of a lock.

use std::time::Duration;

use fence::{Holder, Token};
use futures_util::future::join_all;

use super::{
    connection::Connection,
    failure::Failure,
    messages::{Node, Request, Watch, children},
    nodes::Nodes,
    session::Session,
};
use crate::backend::BackendError;

/// What ZooKeeper shows of a lock. The queue is that of one moment, and the offset was read after it.
#[derive(Debug)]
pub(super) struct View {
    /// The owner's place, and those of the waiters, the oldest first, or only those of one holder.
    pub(super) queue: Vec<Place>,
    /// The number of all places.
    pub(super) count: usize,
    offset: i64,
    /// The version of the offset's node; `None` if there is none.
    pub(super) offset_version: Option<i32>,
}

/// How much of a queue is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    All,
    /// The places of this holder. They don't show who owns the lock.
    Holder(&'a Holder),
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
    pub(super) session: Session,
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
}

impl Predecessor {
    /// Whether the place still exists.
    pub(super) async fn exists(
        &self,
        connection: &Connection,
        watch: Watch,
    ) -> Result<bool, Failure> {
        match connection.send(Request::get_data(&self.path, watch)).await {
            // A node that was deleted and made again is behind the waiter.
            Ok(answer) => Ok(Node::parse(&answer)?.created == self.created),
            Err(Failure::NoNode) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

impl View {
    /// Reads a lock as this member shows it.
    pub(super) async fn read(
        connection: &Connection,
        nodes: &Nodes,
        part: Part<'_>,
    ) -> Result<Self, Failure> {
        loop {
            let children =
                match connection.send(Request::get_children(&nodes.queue(), Watch::No)).await {
                    Ok(answer) => children(&answer)?,
                    // An empty queue may have been deleted.
                    Err(Failure::NoNode) => Vec::new(),
                    Err(failure) => return Err(failure),
                };
            if let Some(view) = Self::read_children(connection, nodes, &children, part).await? {
                return Ok(view);
            }
        }
    }

    /// Reads the children of a queue, and the offset. Returns `None` if a child was deleted meanwhile:
    /// it may have moved to another node, which is not among the children that were listed.
    async fn read_children(
        connection: &Connection,
        nodes: &Nodes,
        children: &[String],
        part: Part<'_>,
    ) -> Result<Option<Self>, Failure> {
        let queue = nodes.queue();
        let parsed = children.iter().map(|child| Ok((child, Nodes::parse(child)?)));
        let parsed: Vec<_> = parsed.collect::<Result<_, Failure>>()?;
        let ours = parsed.into_iter().filter_map(|(child, place)| Some((child, place?)));
        let ours: Vec<_> = ours.collect();
        let count = ours.len();
        let is_read = |holder: &Holder| match part {
            Part::All => true,
            Part::Holder(own) => holder == own,
        };
        let read = ours.into_iter().filter(|(_, (holder, _))| is_read(holder));
        let reads = read.map(|(child, (holder, kept))| {
            let path = format!("{queue}/{child}");
            let node = connection.send(Request::get_data(&path, Watch::No));
            async move {
                let node = Node::parse(&node.await?)?;
                let session = Session::parse(node.session, &node.data)?;
                let (created, grant) = (node.created, kept.unwrap_or(node.created));
                Ok(Place { path, holder, created, grant, session })
            }
        });
        // All requests are sent here, and the one for the offset is the last.
        let reads: Vec<_> = reads.collect();
        let offset = connection.send(Request::get_data(&nodes.offset(), Watch::No));
        let mut places = Vec::with_capacity(reads.len());
        for place in join_all(reads).await {
            match place {
                Ok(place) => places.push(place),
                Err(Failure::NoNode) => return Ok(None),
                Err(failure) => return Err(failure),
            }
        }
        places.sort_by_key(|place| place.grant);
        let (offset, offset_version) = match offset.await {
            Ok(answer) => {
                let node = Node::parse(&answer)?;
                (node.data.parse().map_err(|_| Failure::foreign())?, Some(node.version))
            }
            Err(Failure::NoNode) => (0, None),
            Err(failure) => return Err(failure),
        };
        Ok(Some(Self { queue: places, count, offset, offset_version }))
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
            remaining: Duration::from_millis(self.queue[0].session.timeout_ms),
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

/// Makes a token of a number.
pub(super) fn token(number: i64) -> Result<Token, BackendError> {
    Token::try_from(number).map_err(|invalid| BackendError::Rejected(invalid.to_string().into()))
}
