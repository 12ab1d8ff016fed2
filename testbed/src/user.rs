//! The user that a process runs as.

use std::process::Command;

use anyhow::bail;
use rustix::process::geteuid;

/// A user other than the one of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// Returns the user for a database server, which does not run as root: the user that its
    /// package creates, or `None` if this process is not root.
    ///
    /// # Errors
    /// If this process is root, and there is no such user. The error names the package.
    pub(crate) fn unprivileged(name: &str, package: &str) -> anyhow::Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let id = |option: &str| -> anyhow::Result<u32> {
            let output = Command::new("id").args([option, name]).output()?;
            if !output.status.success() {
                bail!("root can't run it, and there is no user {name}; {package} creates the user");
            }
            Ok(String::from_utf8(output.stdout)?.trim().parse()?)
        };
        Ok(Some(Self { uid: id("-u")?, gid: id("-g")? }))
    }
}
