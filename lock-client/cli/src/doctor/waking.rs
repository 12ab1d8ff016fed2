//! Whether a waiter can be woken when a lock is freed.

use fence::ResourceName;
use redis::RedisResult;

use super::{
    connection::{Refusal, Server, ask, heard},
    finding::{Cure, Finding, Severity},
};

const CHECK: &str = "waking";

/// Sends a message on a lock's channel, and sees whether it has a receiver.
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
    let trouble = match deliver(server, &channel).await? {
        Ok(0) => format!("a message of user {user} on {channel} does not arrive"),
        Ok(_) => return Ok(Finding::ok(CHECK, format!("messages of user {user} arrive"))),
        Err((what, refusal)) => format!("user {user} may not {what} {channel}: {refusal}"),
    };
    Ok(Finding::bad(
        Severity::Warning,
        CHECK,
        trouble,
        "nobody can wait for a lock, or is woken when it is freed",
        permissions,
    ))
}

/// How many receivers a message has, of which we are one; or what may not be done.
async fn deliver(
    server: &mut Server,
    channel: &str,
) -> RedisResult<Result<u64, (&'static str, Refusal)>> {
    // It stays until the message has been sent.
    let mut subscriber = match heard(server.subscriber().await)? {
        Ok(subscriber) => subscriber,
        Err(refusal) => return Ok(Err(("subscribe to", refusal))),
    };
    if let Err(refusal) = heard(subscriber.subscribe(channel).await)? {
        return Ok(Err(("subscribe to", refusal)));
    }
    let publish = redis::cmd("PUBLISH").arg(channel).arg("").to_owned();
    let published = ask(&mut server.commands, &publish).await?;
    Ok(published.map_err(|refusal| ("publish on", refusal)))
}
