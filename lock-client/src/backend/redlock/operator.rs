//! What an operator does with the nodes of a cluster: starts it, lets nodes in, and looks at them.

mod admission;
mod counters;
mod founding;
mod peer;
mod trial;
mod view;

use futures_util::future::join_all;

use self::peer::{Peer, Place};
pub(crate) use self::{
    admission::Asked,
    peer::Trouble,
    view::{Cluster, State, View},
};
pub(crate) use super::durability::Persistence;
use super::{InvalidNodes, Redlock, tally::majority};
use crate::backend::redis::Server;

/// The nodes of a cluster, all of them, as an operator names them.
#[derive(Debug)]
pub(crate) struct Operator {
    places: Vec<Place>,
}

impl Operator {
    /// Takes the URLs of all nodes.
    ///
    /// # Errors
    /// [`InvalidNodes`] as [`Redlock::open`].
    pub(crate) fn of(urls: &[&str]) -> Result<Self, InvalidNodes> {
        Redlock::open(urls)?;
        let place = |url: &&str| Place::of(&Server::at(url)?);
        Ok(Self { places: urls.iter().map(place).collect::<Result<_, InvalidNodes>>()? })
    }

    /// How many nodes are more than half of them.
    pub(crate) fn majority(&self) -> usize {
        majority(self.places.len())
    }

    /// Connects to all nodes.
    async fn connect(&self) -> Vec<Result<Peer, Trouble>> {
        let nodes = self.places.len();
        join_all(self.places.iter().map(|place| place.connect(nodes))).await
    }
}
