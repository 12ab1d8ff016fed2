//! `lab serve`: the page on a loopback address, which plays scenarios as real runs, and sandboxes.

mod access;
mod http;
mod run;
mod runs;

use std::{
    io::{self, Write, stdout},
    net::SocketAddr,
    process::{ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::Args;
use tempfile::NamedTempFile;
use tokio::{
    net::TcpListener,
    process::Command,
    sync::mpsc::unbounded_channel,
    task::{LocalSet, spawn_local},
    time::sleep,
};

use self::{access::Access, runs::Runs};

/// What opens an address in the user's browser: on Linux and on macOS.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// How long the file is kept that leads a browser to the page.
const KEPT: Duration = Duration::from_secs(60);

/// Where to serve the page.
#[derive(Args, Debug)]
pub struct Serve {
    /// Listen at this address, which must be a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8035")]
    listen: SocketAddr,
    /// Don't open the page in a browser
    #[arg(long)]
    no_open: bool,
    /// How many times as long leases last that will expire, for a busy machine
    #[arg(long, hide = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=5))]
    ttl_factor: u32,
}

impl Serve {
    /// Serves the page until it is interrupted.
    ///
    /// # Errors
    /// If the address is no loopback address, or nothing can listen there.
    ///
    /// # Cancellation safety
    /// If it is dropped, all runs end, and their processes with them.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { listen, no_open, ttl_factor } = self;
        ensure!(
            listen.ip().is_loopback(),
            "cannot listen at {listen}: whoever reaches the page starts processes, so only loopback \
             addresses are allowed"
        );
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot listen at {listen}"))?;
        let address = listener.local_addr()?;
        let access = Access::new(address);
        let url = format!("http://{address}/#token={}", access.token());
        writeln!(stdout().lock(), "{url}")?;
        let (starts, mut starting) = unbounded_channel();
        let runs = Arc::new(Runs::new(starts));
        // A replay stays on its thread. All are dropped with the set, which ends their processes.
        let replays = LocalSet::new();
        let playing = async {
            while let Some(start) = starting.recv().await {
                spawn_local(start.play(ttl_factor));
            }
        };
        let serving = replays.run_until(async {
            if !no_open {
                spawn_local(open(url));
            }
            spawn_local(async move { axum::serve(listener, http::router(access, runs)).await });
            playing.await;
        });
        serving.await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Opens an address in the user's browser, if there is one. What fails here is no loss: the address is printed.
///
/// Everybody on the machine can read a browser's arguments, and the address has the token. So they name a file
/// that leads there, which nobody else can read.
async fn open(url: String) {
    let Ok(file) = redirection(&url) else { return };
    let silent = |opener: &str| {
        let mut command = Command::new(opener);
        // Ctrl-C in the terminal ends the server, and not the browser.
        command.arg(file.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    if OPENERS.into_iter().any(|opener| silent(opener).is_ok()) {
        // By then, a slow browser has read it.
        sleep(KEPT).await;
    }
}

/// A page that leads to an address, in a file that only this user can read. It is removed when it is dropped.
fn redirection(url: &str) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("fenced-").suffix(".html").tempfile()?;
    // The address has no character that HTML would read.
    writeln!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={url}\">")?;
    Ok(file)
}
