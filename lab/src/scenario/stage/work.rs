//! What a client of a scenario is told to do: a command, and its arguments.

use std::{ops::Range, process::Command, time::Duration};

use super::lock::{LONG_TTL, TTL};
use crate::programs::built;
use crate::{
    client::{
        as_argument, buyers, naive_redlock, shelf::Guard, waiters::Order, worker::Way,
        writer::Offer,
    },
    record::Actor,
};

/// What a client is to do.
#[derive(Clone, Debug)]
pub(crate) enum Work<'a> {
    /// Write to a storage server.
    Put { write: Write<'a> },
    /// The same under a Redlock as it is often made, with no token.
    NaivePut { way: naive_redlock::Way, write: Write<'a> },
    /// Take a lock and give it back.
    Worker { lock: &'a str, way: Way, ttl: Duration, wait: Duration, redis: &'a str },
    /// Write to a storage server under a lock whose counter may be lost.
    Offer { offer: Offer, write: Write<'a> },
    /// Wait for a lock, in a crowd.
    Wait { lock: &'a str, order: Order, ttl: Duration, count: u64, work: Duration, redis: &'a str },
    /// Buy in a sale.
    Buyers { sale: &'a str, way: buyers::Way, ttl: Duration, numbers: Range<u64>, redis: &'a str },
    /// Work on a row of a table.
    Shelf { resource: &'a str, act: [&'a str; 2], guard: Guard, redis: &'a str, database: &'a str },
}

/// What to write, and under which lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) resource: &'a str,
    pub(crate) value: &'a str,
    pub(crate) ttl: Duration,
    /// One Redis, or the nodes that keep the lock together.
    pub(crate) redis: &'a [String],
    pub(crate) storage: &'a str,
}

impl Work<'_> {
    pub(crate) fn command(self, actor: Actor) -> anyhow::Result<Command> {
        let ttl = if actor == Actor::Client1 { TTL } else { LONG_TTL };
        let ttl_ms = ttl.as_millis().to_string();
        Ok(match self {
            Self::Put { write } => {
                let mut command = built("lock-client")?.command();
                let ttl = format!("{}ms", write.ttl.as_millis());
                command.args(["put", "--step", "--ttl", &ttl]);
                write.tell(&mut command);
                command
            }
            Self::NaivePut { way, write } => {
                let mut command = built("lab")?.command();
                command.args(["naive-redlock", "--way", &as_argument(&way)]);
                command.args(["--ttl-ms", &write.ttl.as_millis().to_string()]);
                write.tell(&mut command);
                command
            }
            Self::Worker { lock, way, ttl, wait, redis } => {
                let mut command = built("lab")?.command();
                command.args(["worker", lock, "--name", actor.title()]);
                command.args(["--way", &as_argument(&way)]);
                command.args(["--ttl-ms", &ttl.as_millis().to_string()]);
                command.args(["--wait-ms", &wait.as_millis().to_string(), "--redis", redis]);
                command
            }
            Self::Offer { offer, write } => {
                let mut command = built("lab")?.command();
                command.args(["writer", "--offer", &as_argument(&offer)]);
                command.args(["--ttl-ms", &write.ttl.as_millis().to_string()]);
                write.tell(&mut command);
                command
            }
            Self::Wait { lock, order, ttl, count, work, redis } => {
                let mut command = built("lab")?.command();
                command.args(["waiters", lock, "--order", &as_argument(&order)]);
                command.args(["--ttl-ms", &ttl.as_millis().to_string()]);
                command.args(["--work-ms", &work.as_millis().to_string()]);
                command.args(["--count", &count.to_string(), "--redis", redis]);
                command
            }
            Self::Buyers { sale, way, ttl, numbers, redis } => {
                let mut command = built("lab")?.command();
                command.args(["buyers", sale, "--way", &as_argument(&way)]);
                command.args(["--ttl-ms", &ttl.as_millis().to_string()]);
                let count = numbers.end - numbers.start;
                command.args(["--first", &numbers.start.to_string()]);
                command.args(["--count", &count.to_string(), "--redis", redis]);
                command
            }
            Self::Shelf { resource, act, guard, redis, database } => {
                let mut command = built("lab")?.command();
                command.args(["shelf-client", resource, "--ttl-ms", &ttl_ms]).args(act);
                command.args(["--guard", &as_argument(&guard)]);
                command.args(["--redis", redis, "--database", database]);
                command
            }
        })
    }
}

impl Write<'_> {
    fn tell(&self, command: &mut Command) {
        command.args([self.resource, self.value, "--storage", self.storage]);
        for url in self.redis {
            command.args(["--redis", url]);
        }
    }
}
