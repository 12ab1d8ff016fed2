//! One Redis: alone, the primary behind Sentinels, or one node of a Redis Cluster.

use std::fmt;

use doctor::{Check, Report, Verdict, redis::Server};
use lock_client::{Locks, redis::Keys};
use redis::{ErrorKind, RedisError, RedisResult, aio::ConnectionLike};

use super::{locking, waking};
use crate::failure::{Failure, with_causes};

/// Connects, and runs all checks.
pub(super) async fn examine(url: &str, locks: &Locks) -> Result<Report, Failure> {
    let mut server = connect(url).await?;
    let examined = run_checks(&mut server, locks).await;
    examined.map_err(|error| unavailable(&server.address(), &error))
}

/// Connects to the server of a URL: behind Sentinels, to the primary; of a Redis Cluster, to one of
/// the named nodes.
pub(super) async fn connect(url: &str) -> Result<Server, Failure> {
    let redis = lock_client::redis::Server::open(url)?;
    let client = redis.node().await.map_err(|error| unavailable(&redis, &error))?;
    let address = client.get_connection_info().addr().to_string();
    Server::connect(client).await.map_err(|error| unavailable(&address, &error))
}

async fn run_checks(server: &mut Server, locks: &Locks) -> Result<Report, RedisError> {
    let mut report = doctor::redis::examine(server).await?;
    let user = report.user.clone().unwrap_or_default();
    let commands = &mut server.commands;
    report.checks.extend(named_alone(commands).await?);
    let name = locking::unused_name_on(commands).await?;
    report.checks.push(locking::locking(commands, locks, &name, &user).await?);
    let permissions = locking::permissions(&user);
    report.checks.push(waking::waking(server, &name, &user, permissions).await?);
    Ok(report)
}

/// Checks that a Redis that is named alone is not a node of a Redlock cluster.
async fn named_alone(connection: &mut impl ConnectionLike) -> RedisResult<Option<Check>> {
    let exists = redis::cmd("EXISTS").arg(Keys::NODE).to_owned();
    let is_node = doctor::redis::ask::<bool>(connection, &exists).await?.unwrap_or(false);
    Ok(is_node.then(|| {
        Check::bad(
            Verdict::Unfit,
            "membership",
            "it is a node of a Redlock cluster (it has the key fenced:node), and was named alone",
            "a client that acquires a lock on this node alone holds it while another client holds it on the \
             other nodes, and both may have the same token",
            "name all nodes of the cluster: --locks once for each, or FENCED_LOCKS with spaces between them; \
             if it is no longer a node, delete the key",
        )
    }))
}

fn unavailable(server: &impl fmt::Display, error: &RedisError) -> Failure {
    let text = with_causes(error);
    Failure::Unavailable(if error.code() == Some("NOAUTH") {
        format!("{server}: {text}")
    } else if error.kind() == ErrorKind::AuthenticationFailed {
        format!("{server} rejected the password: {text}")
    } else if error.code().is_some() {
        format!("{server} rejected the connection: {text}")
    } else {
        format!("no answer from Redis at {server}: {text}")
    })
}
