//! Whether a proxy keeps a connection open that the server has closed.

use std::fmt::Display;

use redis::RedisResult;

use super::{
    connection::{Server, ask},
    finding::{Cure, Finding, Severity},
};

const CHECK: &str = "proxy";

/// Closes a connection of its own at the server, and checks that it has ended here, too.
///
/// A client knows a node's process by its connection: a restart ends it. A proxy that connects again
/// by itself hides the restart. If the node came up with an old copy, it would vote with old
/// counters.
///
/// # Errors
/// If no further connection can be made.
pub(super) async fn proxy(server: &Server) -> RedisResult<Finding> {
    let mut connection = server.another().await?;
    let id = match ask::<u64>(&mut connection, redis::cmd("CLIENT").arg("ID")).await? {
        Ok(id) => id,
        Err(rejection) => return Ok(unseen(&rejection)),
    };
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(id).arg("SKIPME").arg("no");
    // The server may close the connection before the answer has arrived.
    if let Ok(Err(rejection)) = ask::<u64>(&mut connection, &kill).await {
        return Ok(unseen(&rejection));
    }
    match ask::<u64>(&mut connection, redis::cmd("CLIENT").arg("ID")).await {
        Err(error) if error.is_timeout() => Ok(unseen(&error)),
        Err(_) => Ok(Finding::ok(CHECK, "a connection ends when the server closes it")),
        Ok(Err(rejection)) => Ok(unseen(&rejection)),
        Ok(Ok(_)) => Ok(Finding::bad(
            Severity::TokenLoss,
            CHECK,
            "a proxy answers on a connection that the server has closed: it connects again by \
             itself",
            "clients do not notice a restart of the node, which may then vote with old counters, \
             and issue tokens a second time",
            Cure::advice(
                "name the node itself; a proxy that passes on bytes and ends both connections \
                 together does no harm",
            ),
        )),
    }
}

fn unseen(reason: &dyn Display) -> Finding {
    Finding::bad(
        Severity::Unseen,
        CHECK,
        format!("whether a proxy reconnects by itself could not be seen: {reason}"),
        "a proxy that hides a restart of the node lets it vote with old counters",
        Cure::advice("run this as a user who may use CLIENT ID and CLIENT KILL"),
    )
}
