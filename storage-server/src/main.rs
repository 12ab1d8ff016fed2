//! The `storage-server` command.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Parser;
use storage_server::{Config, serve, store};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            EnvFilter::builder()
                .with_default_directive(tracing::Level::INFO.into())
                .from_env_lossy(),
        )
        .init();
    match run(Config::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storage-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: Config) -> anyhow::Result<()> {
    let (terminate, interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut shutdown = Box::pin(first_of(terminate, interrupt));
    let listener = TcpListener::bind(&config.listen)
        .await
        .with_context(|| format!("can't listen on {}", config.listen))?;
    let store = tokio::select! {
        store = store::open(&config.database_url) => store?,
        () = &mut shutdown => bail!("stopped before the database was open"),
    };
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening on http://{}", listener.local_addr()?)?;
    stdout.flush()?;
    let max_value_bytes = config.max_value_bytes.try_into()?;
    serve(listener, store, config.enforcement, max_value_bytes, shutdown).await
}

async fn first_of(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
