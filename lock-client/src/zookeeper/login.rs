//! What the nodes of the locks show about a client's user and password.

use futures_util::future::try_join_all;

use super::{
    client::ZooKeeper,
    connection::Connection,
    failure::Failure,
    messages::{Request, Watch, child_count, children, lets_everybody_create},
    nodes::Nodes,
};
use crate::backend::BackendError;

/// How many nodes of locks are looked at.
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
        let server = self.ensemble.server();
        let [root, queues, offsets] = Nodes::above_all(&server.root);
        let (mut is_empty, mut is_open) = (true, false);
        for node in [&root, &queues, &offsets] {
            if let Some(access) = answer(connection, node, Request::get_access(node)).await? {
                is_empty = false;
                is_open |= lets_everybody_create(&access).map_err(|error| (node.clone(), error))?;
            }
        }
        for above in [&queues, &offsets] {
            let list = Request::get_children(above, Watch::No);
            let Some(list) = answer(connection, above, list).await? else { continue };
            let names = children(&list).map_err(|error| (above.clone(), error))?;
            let looks = names.iter().take(NODES).map(async |name| {
                let node = format!("{above}/{name}");
                // ZooKeeper is about to delete an empty queue. It does not matter whose it was.
                let is_left = above == &queues && is_without_children(connection, &node).await?;
                if !is_left {
                    answer(connection, &node, Request::get_data(&node, Watch::No)).await?;
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

/// Whether a node has no children. It needs no permission.
async fn is_without_children(
    connection: &Connection,
    node: &str,
) -> Result<bool, (String, Failure)> {
    let Some(numbers) = answer(connection, node, Request::exists(node)).await? else {
        return Ok(true);
    };
    let count = child_count(&numbers).map_err(|error| (node.to_owned(), error))?;
    Ok(count == 0)
}

/// Returns the answer to a request about a node; `None` if the node does not exist.
async fn answer(
    connection: &Connection,
    node: &str,
    request: Request,
) -> Result<Option<Vec<u8>>, (String, Failure)> {
    match connection.send(request).await {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::NoNode) => Ok(None),
        Err(failure) => Err((node.to_owned(), failure)),
    }
}
