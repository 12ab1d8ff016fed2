//! s3s-fs: it checks conditions, but not in one step with the write. So two clients may both succeed.

use std::{fs, net::Ipv4Addr, process::Command};

use anyhow::bail;
use tempfile::TempDir;

use super::{Answer, ObjectStorage, PORT_ATTEMPTS};
use crate::{package::installed, ports::free_ports, process::Process};

/// Where `make s3s-fs` puts the program.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/s3s-fs/bin");
const PACKAGE: &str = "the crate s3s-fs, which `make s3s-fs` installs,";

impl ObjectStorage {
    /// Starts an s3s-fs, whose conditional writes are **not** atomic.
    ///
    /// # Errors
    /// If s3s-fs isn't installed or doesn't start.
    pub async fn start_s3s_fs() -> anyhow::Result<Self> {
        for _ in 0..PORT_ATTEMPTS {
            let [port] = free_ports()?;
            let mut server = launch(port)?;
            // It rejects a request without a signature.
            let rejects = |answer: &str| answer.contains("AccessDenied");
            if let Answer::Ready = server.answers(server.address, "GET /", rejects).await? {
                return Ok(server);
            }
        }
        bail!("{PORT_ATTEMPTS} times a port was free, and another process took it")
    }
}

fn launch(port: u16) -> anyhow::Result<ObjectStorage> {
    let folder = TempDir::with_prefix("fenced-")?;
    let data = folder.path().join("data");
    // A bucket is a folder.
    fs::create_dir_all(data.join(ObjectStorage::BUCKET))?;
    let mut command = Command::new(installed("s3s-fs", &[PROGRAMS.into()], PACKAGE)?);
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--access-key", ObjectStorage::ACCESS_KEY_ID]);
    command.args(["--secret-key", ObjectStorage::SECRET_ACCESS_KEY]);
    command.arg(data);
    let process = Process::spawn("s3s-fs", &command, folder.path())?;
    let address = (Ipv4Addr::LOCALHOST, port).into();
    Ok(ObjectStorage { process, address, strays: Vec::new(), _folder: folder })
}
