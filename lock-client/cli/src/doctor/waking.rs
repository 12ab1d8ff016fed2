//! Whether waiting clients are notified when a lock is freed.

use fence::ResourceName;
use redis::RedisResult;

use super::{
    connection::{Rejection, Server, ask, separate_rejection},
    finding::{Cure, Finding, Severity},
};

const CHECK: &str = "waking";

/// Publishes a message on a lock's channel, and checks whether it has a receiver.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn waking(
    server: &mut Server,
    name: &ResourceName,
    user: &str,
    permissions: Cure,
) -> RedisResult<Finding> {
    let channel = format!("fenced:{{{}}}:freed", name.as_str());
    let problem = match publish_to_self(server, &channel).await? {
        Ok(0) => format!("a message of user {user} on {channel} does not arrive"),
        Ok(_) => return Ok(Finding::ok(CHECK, format!("messages of user {user} arrive"))),
        Err((action, rejection)) => {
            format!("user {user} may not {action} {channel}: {rejection}")
        }
    };
    Ok(Finding::bad(
        Severity::Warning,
        CHECK,
        problem,
        "no client can wait for a lock, or is notified when it is freed",
        permissions,
    ))
}

/// Subscribes and publishes. Returns the number of receivers, or the rejected action.
async fn publish_to_self(
    server: &mut Server,
    channel: &str,
) -> RedisResult<Result<u64, (&'static str, Rejection)>> {
    // The subscription lasts until the message is published.
    let mut subscriber = match separate_rejection(server.subscriber().await)? {
        Ok(subscriber) => subscriber,
        Err(rejection) => return Ok(Err(("subscribe to", rejection))),
    };
    if let Err(rejection) = separate_rejection(subscriber.subscribe(channel).await)? {
        return Ok(Err(("subscribe to", rejection)));
    }
    let publish = redis::cmd("PUBLISH").arg(channel).arg("").to_owned();
    let published = ask(&mut server.commands, &publish).await?;
    Ok(published.map_err(|rejection| ("publish on", rejection)))
}
