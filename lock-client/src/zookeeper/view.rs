//! What ZooKeeper shows of a lock.

use std::time::Duration;

use fence::{Holder, Token};

use super::{
    connection::Connection,
    failure::Failure,
    messages::{Node, Request, Watch},
    nodes::Nodes,
    session::Session,
};
use crate::backend::BackendError;

/// What ZooKeeper shows of a lock. The queue was listed first, and the offset was read last. If a node
/// was listed and is gone when it is read, the look starts again.
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
    /// Whether a watch has shown that the place is gone.
    pub(super) is_gone: bool,
}

impl Predecessor {
    /// Whether the place still exists.
    pub(super) async fn exists(
        &self,
        connection: &Connection,
        watch: Watch,
    ) -> Result<bool, Failure> {
        if self.is_gone {
            return Ok(false);
        }
        match connection.send(Request::get_data(&self.path, watch)).await {
            // A node that was deleted and made again is behind the waiter.
            Ok(answer) => Ok(Node::parse(&answer)?.created == self.created),
            Err(Failure::NoNode) => Ok(false),
            Err(failure) => Err(failure),
        }
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
        part: Part<'_>,
        own_path: Option<&str>,
    ) -> Result<Self, Failure> {
        loop {
            if let Some(view) = Self::try_read(connection, nodes, part, own_path).await? {
                return Ok(view);
            }
        }
    }

    /// Returns `None` if a child was deleted meanwhile: it may have moved to another node, which is not
    /// among the children that were listed.
    async fn try_read(
        connection: &Connection,
        nodes: &Nodes,
        part: Part<'_>,
        own_path: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        let get_data = |path: &str| Request::get_data(path, Watch::No);
        // 1. List the queue. The offset is always the last.
        let list = Request::get_children(&nodes.queue(), Watch::No);
        let offset = get_data(&nodes.offset());
        let reads = [Some(list), own_path.map(get_data), Some(offset.clone())];
        let mut results = connection.read(&reads.into_iter().flatten().collect::<Vec<_>>()).await?;
        let children = match results.children() {
            // An empty queue may have been deleted.
            Err(Failure::NoNode) => Vec::new(),
            children => children?,
        };
        let mut listed = Listed::parse(nodes, &children)?;
        let count = listed.len();
        if let Part::Holder(own) = part {
            listed.retain(|place| place.holder == *own);
        }
        // 2. Read what was listed, unless that was the one node that was guessed.
        let mut read = own_path.iter().count();
        if listed.iter().any(|place| Some(place.path.as_str()) != own_path) {
            let reads = listed.iter().map(|place| get_data(&place.path));
            results = connection.read(&reads.chain([offset]).collect::<Vec<_>>()).await?;
            read = listed.len();
        }
        let read: Vec<_> = (0..read).map(|_| results.node()).collect();
        let mut queue = Vec::with_capacity(listed.len());
        for (Listed { path, holder, kept }, node) in listed.into_iter().zip(read) {
            let node = match node {
                Err(Failure::NoNode) => return Ok(None),
                node => node?,
            };
            let session = Session::parse(node.session, &node.data)?;
            let (created, grant) = (node.created, kept.unwrap_or(node.created));
            queue.push(Place { path, holder, created, grant, session });
        }
        queue.sort_by_key(|place| place.grant);
        let (offset, offset_version) = match results.node() {
            Ok(node) => (node.data.parse().map_err(|_| Failure::foreign())?, Some(node.version)),
            Err(Failure::NoNode) => (0, None),
            Err(failure) => return Err(failure),
        };
        Ok(Some(Self { queue, count, offset, offset_version }))
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
            is_gone: false,
        })
    }

    /// The number of a holder's places. A late request may have made a second one.
    pub(super) fn places(&self, holder: &Holder) -> usize {
        self.queue.iter().filter(|place| place.holder == *holder).count()
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

/// Makes a token of a number.
pub(super) fn token(number: i64) -> Result<Token, BackendError> {
    Token::try_from(number).map_err(|invalid| BackendError::Rejected(invalid.to_string().into()))
}
