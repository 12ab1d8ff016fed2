//! The URLs of a cluster's nodes.

use std::sync::Arc;

use crate::{redis::Server, service_url::InvalidUrl};

/// These URLs do not name the nodes of a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidNodes {
    /// A URL can't be used.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// There are too few nodes, or an even number: four nodes tolerate no more failures than three.
    #[error("Redlock takes an odd number of nodes, 3 or 5 as a rule, not {0}")]
    WrongNumber(usize),
    /// Two URLs name the same node.
    #[error("{0} is named twice: each node must be a Redis of its own")]
    Duplicate(String),
    /// Two URLs name different databases. The members of a cluster are known by their addresses,
    /// which name no database: one server could vote in both.
    #[error(
        "{node} is named with database {database}, and {first} with database {first_database}: name \
         all nodes of a cluster with the same database"
    )]
    OtherDatabase {
        /// A node.
        node: String,
        /// Its database.
        database: i64,
        /// The node that was named first.
        first: String,
        /// Its database.
        first_database: i64,
    },
    /// A URL names Sentinels or a Cluster.
    #[error("each node of Redlock is one Redis by itself: name no Cluster and no Sentinels")]
    NotSingle,
}

/// The server that one URL names.
#[derive(Clone)]
pub(super) struct NodeUrl {
    pub(super) server: Arc<Server>,
    /// The server's address, without a password.
    pub(super) address: String,
    database: i64,
}

impl NodeUrl {
    fn parse(url: &str) -> Result<Self, InvalidNodes> {
        let server = Server::open(url)?;
        let Some(database) = server.database() else { return Err(InvalidNodes::NotSingle) };
        Ok(Self { address: server.to_string(), server: Arc::new(server), database })
    }

    /// Parses the URL of another node of the same cluster.
    ///
    /// # Errors
    /// Also if it names another database.
    pub(super) fn parse_another(&self, url: &str) -> Result<Self, InvalidNodes> {
        let node = Self::parse(url)?;
        if node.database == self.database {
            return Ok(node);
        }
        Err(InvalidNodes::OtherDatabase {
            node: node.address,
            database: node.database,
            first: self.address.clone(),
            first_database: self.database,
        })
    }

    /// Returns the node at another address, with the same user, password, database and certificates.
    /// `None` if the address is invalid.
    pub(super) fn at(&self, address: &str) -> Option<Self> {
        let server = Arc::new(self.server.with_address(address)?);
        Some(Self { address: address.to_owned(), server, database: self.database })
    }

    /// Parses the URLs of all nodes.
    pub(super) fn parse_all<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Vec<Self>, InvalidNodes> {
        let urls: Vec<_> = urls.into_iter().collect();
        if urls.len() < 3 || urls.len().is_multiple_of(2) {
            return Err(InvalidNodes::WrongNumber(urls.len()));
        }
        let mut nodes: Vec<Self> = Vec::new();
        for url in urls {
            let node = match nodes.first() {
                Some(first) => first.parse_another(url.as_ref())?,
                None => Self::parse(url.as_ref())?,
            };
            if nodes.iter().any(|other| other.address == node.address) {
                return Err(InvalidNodes::Duplicate(node.address));
            }
            nodes.push(node);
        }
        Ok(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_are_in_one_database() {
        let nodes = |urls: [&str; 3]| NodeUrl::parse_all(urls).map(drop).map_err(|e| e.to_string());
        for urls in [
            ["redis://a", "redis://b/0", "redis+unix:///c?db=0"],
            ["redis://a/2", "redis://:secret@b/2", "redis+unix:///c?db=2"],
        ] {
            assert_eq!(nodes(urls), Ok(()));
        }
        let expected = "b:6379 is named with database 1, and a:6379 with database 0: name all nodes \
                        of a cluster with the same database";
        assert_eq!(
            nodes(["redis://a", "redis://:secret@b/1", "redis://c"]),
            Err(expected.to_owned())
        );
        assert!(nodes(["redis://a/1", "redis+unix:///b", "redis://c/1"]).is_err());
    }
}
