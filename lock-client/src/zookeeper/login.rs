//! What the nodes of the locks show about a client's user and password.

use futures_util::future::try_join_all;
use zookeeper_client::{Acl, Error, Permission};

use super::{client::ZooKeeper, connection::Connection, failure::Failure, paths::Paths};
use crate::backend::BackendError;

const NODES: usize = 100;

/// What the nodes of the locks show about a client's user and password. ZooKeeper itself takes every
/// user with every password.
#[derive(Debug)]
pub enum Login {
    /// The client has no user, and may use the nodes.
    Anonymous,
    /// There is no node of a lock yet, so nothing shows whether the password is right.
    Untested,
    /// Everybody may make locks, so nothing shows whether the password is right.
    Open,
    /// The nodes are the user's.
    Confirmed,
    /// The client may not use one of the nodes.
    Rejected {
        /// The node.
        node: String,
        /// ZooKeeper's answer.
        source: BackendError,
    },
}

impl ZooKeeper {
    /// Looks at the nodes above those of all locks, at the queues of 100 locks, and at the offsets of
    /// 100 locks. It changes nothing.
    ///
    /// # Errors
    /// [`BackendError`] if no member answers.
    pub async fn login(&self) -> Result<Login, BackendError> {
        let connection = self.ensemble.reading().await?;
        match self.login_at(&connection).await {
            Ok(login) => Ok(login),
            Err((node, Failure::Other(source @ BackendError::Rejected(_)))) => {
                Ok(Login::Rejected { node, source })
            }
            Err((_, failure)) => Err(failure.into()),
        }
    }

    /// An error names its node.
    async fn login_at(&self, connection: &Connection) -> Result<Login, (String, Failure)> {
        let (server, client) = (self.ensemble.server(), &connection.client);
        let [root, queues, offsets] = Paths::above_all(&server.root);
        let (mut is_empty, mut is_open) = (true, false);
        for node in [&root, &queues, &offsets] {
            if let Some((access, _)) = read(connection, node, client.get_acl(node)).await? {
                is_empty = false;
                is_open |= access.iter().any(lets_everybody_create);
            }
        }
        for above in [&queues, &offsets] {
            let names = read(connection, above, client.list_children(above)).await?;
            let looks = names.iter().flatten().take(NODES).map(async |name| {
                let node = format!("{above}/{name}");
                // ZooKeeper is about to delete an empty queue. It does not matter whose it was.
                let stat = read(connection, &node, client.check_stat(&node)).await?.flatten();
                if above == &offsets || stat.is_some_and(|stat| stat.num_children > 0) {
                    read(connection, &node, client.get_data(&node)).await?;
                }
                Ok(())
            });
            try_join_all(looks).await?;
        }
        Ok(match server.user {
            None => Login::Anonymous,
            Some(_) if is_empty => Login::Untested,
            Some(_) if is_open => Login::Open,
            Some(_) => Login::Confirmed,
        })
    }
}

/// Waits for the answer to a question about a node; `None` if the node does not exist.
async fn read<T>(
    connection: &Connection,
    node: &str,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, (String, Failure)> {
    match connection.answer(answer).await {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::NoNode) => Ok(None),
        Err(failure) => Err((node.to_owned(), failure)),
    }
}

fn lets_everybody_create(access: &Acl) -> bool {
    access.scheme() == "world" && access.permission().has(Permission::CREATE)
}
