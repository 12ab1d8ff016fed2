//! What a client connects to. The scenarios write it, and the client reads it.

use fence::ResourceName;
use serde::{Deserialize, Serialize};

/// What a client connects to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The client's name: the value of a naive lock, and the buyer in a sale.
    pub(crate) name: String,
    /// The resource, and the lock that guards it.
    pub(crate) resource: ResourceName,
    pub(crate) lock: LockSetup,
    pub(crate) store: StoreSetup,
    /// The size of the crowd, if the process is one.
    pub(crate) crowd: Option<CrowdSetup>,
}

/// Which lock a client takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LockSetup {
    /// A lock of the lock client, in one Redis.
    Redis(String),
    /// A lock of the lock client, in etcd.
    Etcd(String),
    /// A lock of the lock client, in ZooKeeper.
    ZooKeeper(String),
    /// A row of PostgreSQL that can be inserted once: no token.
    Row { url: String, expiry: Expiry },
    /// An advisory lock of PostgreSQL: no token, no expiry.
    Advisory(String),
    /// A lock of the lock client, in a table of PostgreSQL.
    Postgres(String),
    /// A lock of the lock client, on several nodes.
    Redlock(Vec<String>),
    /// A key that is set if nobody has set it: no token, no script.
    Key(String),
    /// A Redlock without tokens, on several nodes.
    NaiveRedlock { nodes: Vec<String>, kind: RedlockKind },
    /// None.
    None,
}

/// Whether a lock expires if nobody releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Expiry {
    None,
    AfterTtl,
}

/// A Redlock without tokens: a crate, or Redlock as it is described with one of its rules left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RedlockKind {
    /// The crate rslock.
    Rslock,
    /// It counts a majority of the nodes that answer, instead of all nodes.
    MajorityOfAnswers,
    /// Without a majority, it releases only the nodes that granted, instead of all nodes.
    ReleaseWhereGranted,
}

/// What a client reads and writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StoreSetup {
    /// A storage server.
    Server { url: String, offer: Offer },
    /// A table of PostgreSQL.
    Table { url: String, guard: Guard },
    /// The stock of a sale, in Redis.
    Sale { url: String, guard: SaleGuard },
    /// Nothing: the client only takes the lock.
    None,
}

/// What a client offers to the storage server with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Offer {
    /// Nothing: its lock has no tokens.
    Nothing,
    /// Its token and its holder with writes, and nothing with reads.
    WithWrites,
    /// Its token alone: the storage can't distinguish two holders of one token.
    Token,
    /// Its token and its holder.
    TokenAndHolder,
    /// The same, and a number with each write: it writes again until the storage has decided.
    Numbered,
    /// Its token and its holder, through the lock client: it reissues its token if its first claim is
    /// rejected.
    Reissued,
}

/// How a client guards its transactions on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Guard {
    /// Not at all: it relies on its lock.
    None,
    /// It presents its token when it writes.
    Present,
    /// It claims with its token before it reads, and again before it writes.
    Claim,
}

/// What keeps two buyers from taking the same item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SaleGuard {
    /// The lock alone.
    Lock,
    /// The lock and its token: a buyer claims before it reads, and writes with the token.
    Fence,
    /// A transaction that Redis aborts if the stock has changed: WATCH, MULTI and EXEC. No lock.
    Watch,
}

/// Many clients in one process, all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CrowdSetup {
    /// The number of the first client, which is part of its name.
    pub(crate) first: u64,
    pub(crate) size: u64,
    pub(crate) connections: Connections,
}

/// How the clients of a crowd connect to the lock service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Connections {
    /// All through one connection: then one of them asks at a time.
    Shared,
    /// Each through its own: then all of them ask.
    Own,
}
