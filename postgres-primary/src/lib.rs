//! Finds the primary among several hosts of a PostgreSQL.
//!
//! [`Hosts`] parses a URL with several hosts, [`find_primary`] asks them, and [`Newest`] remembers the
//! highest timeline, so that a primary that was replaced is never used again.

mod divided_url;
mod finding;
mod hosts;
mod instance;

pub use self::{
    divided_url::DividedUrl,
    finding::{ANSWER_LIMIT, Found, NotFound, Seen, ask, describe, find_primary},
    hosts::{Hosts, InvalidHosts, TARGET, address_of},
    instance::{Instance, Newest, NoPrimary, Role},
};
