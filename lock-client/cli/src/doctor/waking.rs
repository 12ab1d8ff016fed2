//! Whether waiting clients are notified when a lock is freed.

use doctor::{
    Check, Cure, Verdict,
    redis::{Rejection, Server, ask, separate_rejection},
};
use fence::ResourceName;
use lock_client::redis::Keys;
use redis::RedisResult;

const NAME: &str = "waking";

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
        Ok(_) => return Ok(Check::ok(NAME, format!("messages of user {user} arrive"))),
        Err((action, rejection)) => {
            format!("user {user} may not {action} {channel}: {rejection}")
        }
    };
    Ok(Check::bad(
        Verdict::Warning,
        NAME,
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
