//! One Redis: alone, the primary behind Sentinels, or one node of a Redis Cluster.

use std::fmt;

use doctor::{
    Check, Cure, Report, Verdict,
    redis::{ErrorReply, Server, ask, separate_error_reply},
};
use fence::ResourceName;
use lock_client::{Locks, redis::Keys};
use redis::{ErrorKind, RedisError, RedisResult, aio::ConnectionLike};

use super::locking;
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
    report.checks.push(doctor::redis::connections(commands).await?);
    report.checks.extend(named_alone(commands).await?);
    let name = locking::unused_name_on(commands).await?;
    report.checks.push(locking::locking(commands, locks, &name, &user).await?);
    let permissions = locking::permissions(&user);
    report.checks.push(waking(server, &name, &user, permissions).await?);
    Ok(report)
}

/// Checks that a Redis that is named alone is not a node of a Redlock cluster.
async fn named_alone(connection: &mut impl ConnectionLike) -> RedisResult<Option<Check>> {
    let exists = redis::cmd("EXISTS").arg(Keys::NODE).to_owned();
    let is_node = ask::<bool>(connection, &exists).await?.unwrap_or(false);
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
    Failure::unavailable(if error.code() == Some("NOAUTH") {
        format!("{server}: {text}")
    } else if error.kind() == ErrorKind::AuthenticationFailed {
        format!("{server} rejected the password: {text}")
    } else if error.code().is_some() {
        format!("{server} rejected the connection: {text}")
    } else {
        format!("no answer from Redis at {server}: {text}")
    })
}

/// Publishes a message on a lock's channel, and checks whether it has a receiver.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn waking(
    server: &mut Server,
    name: &ResourceName,
    user: &str,
    permissions: Cure,
) -> RedisResult<Check> {
    let channel = Keys::new(name).freed();
    let problem = match publish_to_self(server, &channel).await? {
        Ok(0) => format!("a message of user {user} on {channel} does not arrive"),
        Ok(_) => return Ok(Check::ok("waking", format!("messages of user {user} arrive"))),
        Err((action, rejection)) => {
            format!("user {user} may not {action} {channel}: {rejection}")
        }
    };
    Ok(Check::bad(
        Verdict::Warning,
        "waking",
        problem,
        "no client can wait for a lock, or is notified when it is freed",
        permissions,
    ))
}

/// Subscribes and publishes. Returns the number of receivers, or the rejected action.
async fn publish_to_self(
    server: &mut Server,
    channel: &str,
) -> RedisResult<Result<u64, (&'static str, ErrorReply)>> {
    // The subscription lasts until the message is published.
    let mut subscriber = match separate_error_reply(server.subscriber().await)? {
        Ok(subscriber) => subscriber,
        Err(rejection) => return Ok(Err(("subscribe to", rejection))),
    };
    if let Err(rejection) = separate_error_reply(subscriber.subscribe(channel).await)? {
        return Ok(Err(("subscribe to", rejection)));
    }
    let publish = redis::cmd("PUBLISH").arg(channel).arg("").to_owned();
    let published = ask(&mut server.commands, &publish).await?;
    Ok(published.map_err(|rejection| ("publish on", rejection)))
}
