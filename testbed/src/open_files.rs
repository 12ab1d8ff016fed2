//! The number of files that this process may have open.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the number as far as the system allows, because every connection is a file and some
/// systems allow few. If it is still too small, connecting fails.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
