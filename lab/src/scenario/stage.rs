//! What scenarios are played with: a `lock`, a `storage` server or a table (`shelf`), and clients, each
//! with some `work` and a `driver`; or a lock alone (`workplace`), or one that several `nodes` keep.
//!
//! Three courses are played again and again: one client overtakes another (`two_clients`); the lock
//! service loses its counter, and two hold the lock (`two_holders`); a client that was paused past its
//! lease releases (`late_release`).

pub(super) mod driver;
pub(super) mod late_release;
pub(super) mod lock;
pub(super) mod nodes;
pub(super) mod shelf;
pub(super) mod storage;
pub(super) mod two_clients;
pub(super) mod two_holders;
mod work;
pub(super) mod workplace;

pub(super) use self::work::{Work, Write};
