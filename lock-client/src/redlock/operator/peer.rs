//! A node, as an operator sees it.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection};

use crate::redis::{Server, is_passing};
use crate::redlock::InvalidNodes;
use crate::redlock::durability::Durability;
use crate::redlock::membership::Record;
use crate::redlock::membership::Standing;
use crate::redlock::membership::run_id;

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// What an operator asks for may take longer than a lock.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why something can't be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Trouble {
    /// It was asked for wrongly.
    #[error("{0}")]
    Wrong(String),
    /// The nodes are not as they would have to be.
    #[error("{0}")]
    Unavailable(String),
}

/// Where a node is.
#[derive(Debug)]
pub(super) struct Place {
    address: String,
    client: Client,
}

/// A node that answers.
pub(super) struct Peer {
    /// Where it is, without a password.
    pub(super) address: String,
    pub(super) connection: MultiplexedConnection,
    /// The process that is connected to.
    pub(super) run_id: String,
    /// What it keeps of its membership.
    pub(super) record: Option<Record>,
    pub(super) standing: Standing,
    /// How long it took to answer.
    pub(super) lag: Duration,
}

impl Place {
    pub(super) fn of(server: &Server) -> Result<Self, InvalidNodes> {
        let (client, address) = server.single_node().ok_or(InvalidNodes::NotOne)?;
        Ok(Self { address, client: Client::clone(client) })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Connects to the node, which is to be one of so many.
    pub(super) async fn connect(&self, nodes: usize) -> Result<Peer, Trouble> {
        self.peer(nodes).await.map_err(|error| trouble(&self.address, error))
    }

    async fn peer(&self, nodes: usize) -> Result<Peer, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECTION_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await?;
        let asked = Instant::now();
        let run_id = run_id(&mut connection).await?;
        let lag = asked.elapsed();
        let record = Record::read(&mut connection).await?;
        let standing = Standing::of(&mut connection, &run_id, record.as_ref(), nodes).await?;
        Ok(Peer { address: self.address.clone(), connection, run_id, record, standing, lag })
    }
}

impl Peer {
    /// The cluster's id that its record has.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.record.as_ref().map(|record| record.cluster.as_str())
    }

    pub(super) async fn durability(&mut self) -> Result<Durability, Trouble> {
        let durability = Durability::of(&mut self.connection).await;
        durability.map_err(|error| self.trouble(error))
    }

    pub(super) fn trouble(&self, error: RedisError) -> Trouble {
        trouble(&self.address, error)
    }
}

/// Sees that no two of them are one server.
pub(super) fn distinct<'a>(peers: impl IntoIterator<Item = &'a Peer>) -> Result<(), Trouble> {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for peer in peers {
        if let Some(other) = seen.insert(&peer.run_id, &peer.address) {
            return Err(Trouble::Wrong(format!(
                "{other} and {} are one server: each node is one by itself",
                peer.address
            )));
        }
    }
    Ok(())
}

fn trouble(address: &str, error: RedisError) -> Trouble {
    let problem = if is_passing(&error) { "no answer" } else { "refused" };
    Trouble::Unavailable(format!("{address}: {problem}: {error}"))
}
