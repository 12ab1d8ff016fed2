//! Azurite, which speaks the protocol of Azure's object storage.

use std::{net::Ipv4Addr, path::Path, process::Command};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::{Answer, ObjectStorage, PORT_ATTEMPTS};
use crate::{package::installed, ports::free_ports, process::Process};

/// Where `make azurite` puts the package.
const MAIN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../target/azurite/node_modules/azurite/dist/src/blob/main.js"
);
/// Azurite has no command for this, and the request has to be signed.
const CREATE_CONTAINER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/object_storage/create_container.mjs");

/// A private Azurite on a free port of 127.0.0.1, with its data in a temporary folder. It has one
/// container, and the account that every Azurite has.
#[derive(Debug)]
pub struct Azurite(ObjectStorage);

impl Azurite {
    /// The container, which is empty at first.
    pub const CONTAINER: &'static str = "fenced";
    const ACCOUNT: &'static str = "devstoreaccount1";
    const KEY: &'static str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/\
                               KBHBeksoGMGw==";

    /// The variables that give a program the account and its key.
    pub const VARIABLES: [(&'static str, &'static str); 2] =
        [("AZURE_STORAGE_ACCOUNT_NAME", Self::ACCOUNT), ("AZURE_STORAGE_ACCOUNT_KEY", Self::KEY)];

    /// Starts an Azurite.
    ///
    /// # Errors
    /// If Azurite or Node.js isn't installed, or Azurite doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        for _ in 0..PORT_ATTEMPTS {
            let [port] = free_ports()?;
            let mut server = launch(port)?;
            let list = format!("GET /{}?comp=list", Self::ACCOUNT);
            let (address, answers) = (server.address, |answer: &str| answer.starts_with("HTTP/"));
            if let Answer::Ready = server.answers(address, &list, answers).await? {
                let azurite = Self(server);
                azurite.create_container().await?;
                return Ok(azurite);
            }
        }
        bail!("{PORT_ATTEMPTS} times a port was free, and another process took it")
    }

    /// Returns the URL of a folder of its container, for `lab`.
    pub fn url(&self, folder: &str) -> String {
        format!("az://{}/{folder}?endpoint={}", Self::CONTAINER, self.account())
    }

    /// The URL of its account.
    fn account(&self) -> String {
        format!("{}/{}", self.0.endpoint(), Self::ACCOUNT)
    }

    async fn create_container(&self) -> anyhow::Result<()> {
        let mut create = node()?;
        create.arg(CREATE_CONTAINER).arg(self.account()).args([
            Self::ACCOUNT,
            Self::KEY,
            Self::CONTAINER,
        ]);
        let output = spawn_blocking(move || create.output()).await??;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the container was not created: {stderr}");
        Ok(())
    }
}

fn launch(port: u16) -> anyhow::Result<ObjectStorage> {
    ensure!(Path::new(MAIN).exists(), "Azurite is not installed; `make azurite` installs it");
    let folder = TempDir::with_prefix("fenced-")?;
    let mut command = node()?;
    command.arg(MAIN).args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
    command.arg("--location").arg(folder.path());
    // It reports statistics to its makers otherwise, and rejects clients that are newer than it is.
    command.args(["--silent", "--disableTelemetry", "--skipApiVersionCheck"]);
    let process = Process::spawn("azurite", &command, folder.path())?;
    let address = (Ipv4Addr::LOCALHOST, port).into();
    Ok(ObjectStorage { process, address, strays: Vec::new(), _folder: folder })
}

fn node() -> anyhow::Result<Command> {
    let node = installed("node", &[], "the package nodejs");
    Ok(Command::new(node.context("Azurite needs Node.js")?))
}
