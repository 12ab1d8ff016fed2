//! Locks in Redis: one node, a primary that Sentinels know, or a Cluster. The README says how to use them, and
//! how clients wait. Without a notification, waiters near the head of a fair queue try every second, or when
//! the owner's ttl ends. The others try every ten seconds at least, and in a queue of more than a hundred
//! every minute at least.
//!
//! **Where the token comes from.** Each lock has a counter. One script, `acquire.lua`, takes the
//! lock if it is free, and increments the counter. The new count is the token.
//!
//! **Why it grows.** Redis runs one script at a time, and nothing ever lowers the counter. A
//! missing counter starts at the client's Unix time in milliseconds. This is above every token that
//! it ever issued, unless clocks went back or the lock was granted more than 1 000 times a second
//! throughout. To start it elsewhere, set it before its first use: `SET fenced:{NAME}:token 32`.
//!
//! **What breaks that.** A Redis that loses writes: one that restarts without persistence or from
//! an old snapshot, fails over to a replica that lags behind, or evicts keys. Then a token may be
//! issued twice. The storage distinguishes the two holders, and rejects the later one. If that
//! holder holds the lock, it continues with a higher token
//! ([`Lease::reissue`](crate::Lease::reissue)). `lock-client doctor` reports whether a Redis may
//! lose writes, and which settings prevent it.
//!
//! # Keys
//! `fenced:{NAME}:lock`, `:token`, `:queue` and `:queue:alive`, and the channels `:freed` and
//! `:freed:HOLDER`. In the name, `%`, `{` and `}` become `%25`, `%7B` and `%7D`: the braces are
//! Redis Cluster's hash tag, which keeps a lock's keys in one slot.
//!
//! # Lost connections
//! The connection is made when it is first needed, and again after it was lost, to the primary of
//! that moment. While locks are held, it is checked every second, and made again at once, except on a
//! Cluster: later, other clients may have all connections of the server. A request whose reply was lost is
//! [`Unavailable`](crate::backend::BackendError::Unavailable): it may have been carried out. After
//! SCRIPT FLUSH, scripts are sent again.

mod client;
mod connection;
mod failure;
pub(crate) mod keys;
pub(crate) mod line;
mod names;
mod reply;
pub(crate) mod script;
mod server;
mod settings;
pub(crate) mod transport;
pub(crate) mod wakeups;

pub use self::client::Redis;
pub use self::failure::lacks_permission;
pub use self::keys::Keys;
pub use self::server::{Server, schemes};

pub(crate) use crate::clock::unix_millis;

pub(crate) use self::{
    connection::CHECK_INTERVAL,
    failure::is_passing,
    reply::{InvalidReply, remaining_time, status},
    settings::TimeLimits,
};
