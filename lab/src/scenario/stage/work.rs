//! What a client of a scenario is told to do: a command, and its arguments.

use std::{ops::Range, process::Command, time::Duration};

use super::lock::{LONG_TTL, TTL};
use crate::{
    client::{as_argument, buyers, shelf::Guard, waiters::Order, worker::Way, writer::Offer},
    record::Actor,
    servers::built,
};

/// What a client is to do.
#[derive(Clone, Debug)]
pub(crate) enum Work<'a> {
    /// Write to a storage server.
    Put { resource: &'a str, value: &'a str, redis: &'a str, storage: &'a str },
    /// Take a lock and give it back.
    Worker { lock: &'a str, way: Way, ttl: Duration, wait: Duration, redis: &'a str },
    /// Write to a storage server under a lock whose counter may be lost.
    Write { resource: &'a str, value: &'a str, offer: Offer, redis: &'a str, storage: &'a str },
    /// Wait for a lock, in a crowd.
    Wait { lock: &'a str, order: Order, ttl: Duration, count: u64, work: Duration, redis: &'a str },
    /// Buy in a sale.
    Buyers { sale: &'a str, way: buyers::Way, ttl: Duration, numbers: Range<u64>, redis: &'a str },
    /// Work on a row of a table.
    Shelf { resource: &'a str, act: [&'a str; 2], guard: Guard, redis: &'a str, database: &'a str },
}

impl Work<'_> {
    pub(crate) fn command(self, actor: Actor) -> anyhow::Result<Command> {
        let ttl = if actor == Actor::Client1 { TTL } else { LONG_TTL };
        let ttl_ms = ttl.as_millis().to_string();
        Ok(match self {
            Self::Put { resource, value, redis, storage } => {
                let mut command = Command::new(built("lock-client")?);
                command.args(["put", resource, value, "--ttl", &format!("{ttl_ms}ms"), "--step"]);
                command.args(["--redis", redis, "--storage", storage]);
                command
            }
            Self::Worker { lock, way, ttl, wait, redis } => {
                let mut command = Command::new(built("lab")?);
                command.args(["worker", lock, "--name", actor.title()]);
                command.args(["--way", &as_argument(&way)]);
                command.args(["--ttl-ms", &ttl.as_millis().to_string()]);
                command.args(["--wait-ms", &wait.as_millis().to_string(), "--redis", redis]);
                command
            }
            Self::Write { resource, value, offer, redis, storage } => {
                let ttl_ms = LONG_TTL.as_millis().to_string();
                let mut command = Command::new(built("lab")?);
                command.args(["writer", resource, value, "--offer", &as_argument(&offer)]);
                command.args(["--ttl-ms", &ttl_ms, "--redis", redis, "--storage", storage]);
                command
            }
            Self::Wait { lock, order, ttl, count, work, redis } => {
                let mut command = Command::new(built("lab")?);
                command.args(["waiters", lock, "--order", &as_argument(&order)]);
                command.args(["--ttl-ms", &ttl.as_millis().to_string()]);
                command.args(["--work-ms", &work.as_millis().to_string()]);
                command.args(["--count", &count.to_string(), "--redis", redis]);
                command
            }
            Self::Buyers { sale, way, ttl, numbers, redis } => {
                let mut command = Command::new(built("lab")?);
                command.args(["buyers", sale, "--way", &as_argument(&way)]);
                command.args(["--ttl-ms", &ttl.as_millis().to_string()]);
                let count = numbers.end - numbers.start;
                command.args(["--first", &numbers.start.to_string()]);
                command.args(["--count", &count.to_string(), "--redis", redis]);
                command
            }
            Self::Shelf { resource, act, guard, redis, database } => {
                let mut command = Command::new(built("lab")?);
                command.args(["shelf-client", resource, "--ttl-ms", &ttl_ms]).args(act);
                command.args(["--guard", &as_argument(&guard)]);
                command.args(["--redis", redis, "--database", database]);
                command
            }
        })
    }
}
