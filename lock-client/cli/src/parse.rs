//! Parsers of arguments.

use std::str::FromStr;

use fence::{InvalidName, ResourceName};
use lock_client::Ttl;

/// Parses a ttl, such as `30s`.
pub(crate) fn ttl(text: &str) -> Result<Ttl, String> {
    let duration = humantime::Duration::from_str(text).map_err(|error| error.to_string())?;
    Ttl::new(duration.into()).map_err(|error| error.to_string())
}

/// Parses the name of a lock and of the resource that it guards.
pub(crate) fn name(text: &str) -> Result<ResourceName, InvalidName> {
    text.parse()
}
