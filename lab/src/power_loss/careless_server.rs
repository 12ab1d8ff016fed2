//! The storage server on an SQLite file with a careless setting.

use std::{future::pending, process::ExitCode};

use clap::Args;
use sqlx::sqlite::SqliteSynchronous;
use storage_server::{Config, open_careless_sqlite, serve};
use tokio::net::TcpListener;

/// The storage server, with a setting that its command doesn't have.
#[derive(Args, Debug)]
pub struct CarelessServer {
    #[arg(long)]
    listen: String,
    #[arg(long)]
    database_url: String,
    #[arg(long)]
    synchronous: SqliteSynchronous,
}

impl CarelessServer {
    /// Serves until the process is killed.
    ///
    /// # Errors
    /// If the file can't be opened, or the server can't listen.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let store = open_careless_sqlite(&self.database_url, self.synchronous).await?;
        let listener = TcpListener::bind(self.listen).await?;
        println!("listening on http://{}", listener.local_addr()?);
        serve(listener, store, Config::default(), pending()).await?;
        Ok(ExitCode::SUCCESS)
    }
}
