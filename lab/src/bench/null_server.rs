//! The null server: the storage server over a store that does nothing. It shows what HTTP costs on a machine.

use std::{
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use storage_server::{
    ApplyError, Change, Config, Decide, Listing, Page, ReadError, Row, Store, Unreachable,
    UnreadableRow, Wanted, serve,
};
use tempfile::TempDir;
use tokio::net::TcpListener;

use testbed::process::Process;

/// The null server, in its own process.
pub(super) struct NullServer {
    pub(super) url: String,
    _process: Process,
    _folder: TempDir,
}

impl NullServer {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve-nothing");
        let mut process = Process::spawn("serve-nothing", &command, folder.path())?;
        let url = process.line(Duration::from_secs(10)).await?;
        Ok(Self { url, _process: process, _folder: folder })
    }
}

/// Serves a store that does nothing, and prints the server's URL.
///
/// # Errors
/// If the server can't listen.
pub async fn serve_nothing() -> anyhow::Result<ExitCode> {
    // Like the storage server itself, with a runtime of many threads.
    let serving = || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            println!("http://{}", listener.local_addr()?);
            let forever = std::future::pending();
            serve(listener, Arc::new(NullStore), Config::default(), forever).await?;
            anyhow::Ok(())
        })
    };
    tokio::task::spawn_blocking(serving).await??;
    Ok(ExitCode::SUCCESS)
}

/// A store that accepts every change and keeps nothing.
struct NullStore;

#[async_trait]
impl Store for NullStore {
    fn database(&self) -> &str {
        "nothing"
    }

    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        Ok(wanted.iter().map(|_| Ok(Row::default())).collect())
    }

    async fn read_durable(&self, _wanted: Wanted<'_>) -> Result<Row, ReadError> {
        Ok(Row::default())
    }

    async fn read(&self, _wanted: Wanted<'_>) -> Result<Row, ReadError> {
        Ok(Row::default())
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        Ok(vec![true; changes.len()])
    }

    async fn apply_under_locks(
        &self,
        wanted: &[Wanted<'_>],
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        decide(&vec![Row::default(); wanted.len()]);
        Ok(true)
    }

    async fn list(&self, _page: &Page) -> Result<Listing, Unreachable> {
        Ok(Listing::default())
    }

    async fn probe(&self) -> Result<(), Unreachable> {
        Ok(())
    }
}
