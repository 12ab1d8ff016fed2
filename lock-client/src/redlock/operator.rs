//! What an operator does with the nodes of a cluster: starts it, lets nodes in, and looks at them.

mod admission;
mod counters;
mod founding;
mod peer;
mod trial;
mod view;

use futures_util::future::join_all;

use self::peer::{Peer, Place};
pub use self::{
    admission::Asked,
    peer::Trouble,
    view::{Cluster, State, View},
};
pub use super::durability::Persistence;
use super::{InvalidNodes, Redlock, tally::majority};
use crate::redis::Server;

/// The nodes of a cluster, all of them, as an operator names them.
#[derive(Debug)]
pub struct Operator {
    places: Vec<Place>,
}

impl Operator {
    /// Takes the URLs of all nodes.
    ///
    /// # Errors
    /// [`InvalidNodes`] as [`Redlock::open`].
    pub fn new<U: AsRef<str>>(urls: &[U]) -> Result<Self, InvalidNodes> {
        Redlock::open(urls)?;
        let place = |url: &U| Place::of(&Server::open(url.as_ref())?);
        Ok(Self { places: urls.iter().map(place).collect::<Result<_, InvalidNodes>>()? })
    }

    /// How many nodes are more than half of them.
    pub fn majority(&self) -> usize {
        majority(self.places.len())
    }

    /// Connects to all nodes.
    async fn connect(&self) -> Vec<Result<Peer, Trouble>> {
        let nodes = self.places.len();
        join_all(self.places.iter().map(|place| place.connect(nodes))).await
    }
}
