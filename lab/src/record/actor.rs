//! Who takes part in a run.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// The lock service.
    Redis,
    /// Another lock service.
    Etcd,
    /// A third lock service.
    #[serde(rename = "zookeeper")]
    ZooKeeper,
    /// The lock service, if it is a table of PostgreSQL.
    LockTable,
    /// The lock service's replica.
    Replica,
    /// Several nodes of a lock service, or all: each event names them.
    Nodes,
    /// The first node of a lock service that has several.
    NodeA,
    /// The second node.
    NodeB,
    /// The third node.
    NodeC,
    /// The fourth node.
    NodeD,
    /// The fifth node.
    NodeE,
    /// The client that is paused, killed or held up.
    Client1,
    /// The client that acquires the lock meanwhile.
    Client2,
    /// A client that comes later.
    Client3,
    /// A client of a sandbox.
    Client4,
    /// All other clients, a crowd.
    Others,
    /// The network between a client and the storage.
    Network,
    /// The database beneath the storage, if it has several members. It may keep the lock, too.
    Database,
    /// The storage.
    Storage,
}

impl Actor {
    /// The nodes of a lock service that has several.
    pub const NODES: [Self; 5] = [Self::NodeA, Self::NodeB, Self::NodeC, Self::NodeD, Self::NodeE];
    /// The clients, by their numbers.
    pub const CLIENTS: [Self; 4] = [Self::Client1, Self::Client2, Self::Client3, Self::Client4];

    /// The name in the head of a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Redis => "lock (Redis)",
            Self::Etcd => "lock (etcd)",
            Self::ZooKeeper => "lock (ZooKeeper)",
            Self::LockTable => "lock (table)",
            Self::Replica => "its replica",
            Self::Nodes => "the nodes",
            Self::NodeA => "node A",
            Self::NodeB => "node B",
            Self::NodeC => "node C",
            Self::NodeD => "node D",
            Self::NodeE => "node E",
            Self::Client1 => "client 1",
            Self::Client2 => "client 2",
            Self::Client3 => "client 3",
            Self::Client4 => "client 4",
            Self::Others => "the others",
            Self::Network => "network",
            Self::Database => "database",
            Self::Storage => "storage",
        }
    }
}

/// Writes a client as its title: `client 1`.
pub(super) fn serialize_client<S: Serializer>(
    client: &Actor,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(client.title())
}

/// Reads a client from its title.
pub(super) fn deserialize_client<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Actor, D::Error> {
    let title = String::deserialize(deserializer)?;
    let mut clients = Actor::CLIENTS.into_iter();
    let client = clients.find(|client| client.title() == title);
    client.ok_or_else(|| D::Error::custom(format!("`{title}` is not a client")))
}
