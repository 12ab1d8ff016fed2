//! The command: its arguments, its log, its signals and its exit code.

use std::{
    ffi::OsString,
    io::{IsTerminal, Write},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Parser;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};
use tracing_subscriber::EnvFilter;

use crate::{causes::with_causes, config::Config, serve::serve, store::open::open_store};

/// An HTTP service that persists the highest fencing token per resource and rejects stale writes.
#[derive(Debug, Parser)]
#[command(name = "storage-server", version)]
struct Arguments {
    /// The address to listen on; port 0 takes a free port.
    #[arg(long, env = "FENCED_LISTEN", default_value = "127.0.0.1:8034", value_name = "ADDRESS")]
    listen: String,

    /// The database: sqlite:FILE, or postgres://USER@HOST/DATABASE.
    #[arg(
        long,
        env = "FENCED_DATABASE_URL",
        default_value = "sqlite:fenced.db",
        hide_env_values = true,
        value_name = "URL"
    )]
    database_url: String,

    #[command(flatten)]
    config: Config,
}

/// Runs the command `storage-server` until SIGTERM or SIGINT, and returns its exit code.
///
/// The first argument is the program's name, as in [`std::env::args_os`]. Once it listens, the
/// server prints `listening on http://ADDRESS` on stdout. Its log goes to stderr, unless the
/// process already has a `tracing` subscriber.
///
/// The exit code is 0 after a clean stop and after `--help`, 1 if the server can't start or fails,
/// and 2 if the arguments are wrong.
pub async fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // A closed stdout or stderr leaves nothing to report to.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    log_to_stderr();
    match serve_until_signal(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storage-server: {}", with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr() {
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            EnvFilter::builder()
                .with_default_directive(tracing::Level::INFO.into())
                .from_env_lossy(),
        );
    // It fails only if a program that runs the server as a part of itself has a subscriber already.
    let _ = subscriber.try_init();
}

async fn serve_until_signal(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { listen, database_url, config } = arguments;
    let (terminate, interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut shutdown = Box::pin(either(terminate, interrupt));
    let listener =
        TcpListener::bind(&listen).await.with_context(|| format!("can't listen on {listen}"))?;
    let store = tokio::select! {
        store = open_store(&database_url) => store?,
        () = &mut shutdown => bail!("stopped before the database was open"),
    };
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening on http://{}", listener.local_addr()?)?;
    stdout.flush()?;
    serve(listener, store, config, shutdown).await?;
    Ok(())
}

async fn either(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn readme_lists_every_option() {
        let readme = include_str!("../README.md");
        let command = Arguments::command();
        for option in command.get_arguments().filter(|option| option.get_env().is_some()) {
            let name = format!("`--{} ", option.get_long().unwrap());
            let variable = option.get_env().unwrap().to_str().unwrap();
            let row = readme.lines().find(|line| line.starts_with('|') && line.contains(&name));
            assert!(row.is_some_and(|row| row.contains(variable)), "{name} {variable}");
        }
    }
}
