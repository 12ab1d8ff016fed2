//! Whether a proxy keeps a connection open that the server has closed.

use std::fmt::Display;

use ::redis::RedisResult;

use super::server::{Server, ask};
use crate::check::{Check, Verdict};

const NAME: &str = "proxy";

/// Closes a connection of its own at the server, and checks that it has ended here, too.
///
/// A client knows a Redlock node's process by its connection: a restart ends it. A proxy that connects
/// again by itself hides the restart. If the node came up with an old copy, it would vote with old
/// counters.
///
/// # Errors
/// If no further connection can be made.
pub async fn proxy(server: &Server) -> RedisResult<Check> {
    let mut connection = server.another().await?;
    let id = match ask::<u64>(&mut connection, ::redis::cmd("CLIENT").arg("ID")).await? {
        Ok(id) => id,
        Err(rejection) => return Ok(unseen(&rejection)),
    };
    let mut kill = ::redis::cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(id).arg("SKIPME").arg("no");
    // The server may close the connection before the answer has arrived.
    if let Ok(Err(rejection)) = ask::<u64>(&mut connection, &kill).await {
        return Ok(unseen(&rejection));
    }
    match ask::<u64>(&mut connection, ::redis::cmd("CLIENT").arg("ID")).await {
        Err(error) if error.is_timeout() => Ok(unseen(&error)),
        Err(_) => Ok(Check::ok(NAME, "a connection ends when the server closes it")),
        Ok(Err(rejection)) => Ok(unseen(&rejection)),
        Ok(Ok(_)) => Ok(Check::bad(
            Verdict::UnfitForFence,
            NAME,
            "a proxy answers on a connection that the server has closed: it connects again by itself",
            "clients do not notice a restart of the node, which may then vote with old counters, and issue \
             tokens a second time",
            "name the node itself; a proxy that passes on bytes and ends both connections together does no \
             harm",
        )),
    }
}

fn unseen(reason: &dyn Display) -> Check {
    Check::unseen(
        NAME,
        format!("whether a proxy reconnects by itself could not be seen: {reason}"),
        "run this as a user who may use CLIENT ID and CLIENT KILL",
    )
}
