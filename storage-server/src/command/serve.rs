//! Serving, which is what the command does without a subcommand.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail, ensure};
use clap::{Args, builder::FalseyValueParser};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

use super::{
    check::check,
    systemd::{notify_ready, notify_stopping, passed_listener},
    tls::TlsArguments,
};
use crate::{
    access::Access,
    audit::{self, file::AuditLog},
    config::{Config, Hosts},
    logs::LogFormat,
    serve::serve,
    store::{
        open::{MissingFile, open_store},
        schema::Migrations,
    },
};

/// How many connections may wait until they are accepted. The system may allow fewer.
const CONNECTIONS_WAITING: i32 = 4096;

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The address to listen on; port 0 takes a free port. A socket that systemd passes is used instead.
    #[arg(long, env = "FENCED_LISTEN", default_value = "127.0.0.1:8034", value_name = "ADDRESS")]
    listen: String,

    /// Don't create a database file that is missing: an empty one knows no fence.
    #[arg(long, env = "FENCED_NO_CREATE", value_parser = FalseyValueParser::new())]
    no_create: bool,

    /// Create no tables: fail unless `storage-server migrate` has.
    #[arg(long, env = "FENCED_NO_MIGRATE", value_parser = FalseyValueParser::new())]
    no_migrate: bool,

    #[command(flatten)]
    tls: TlsArguments,

    /// The file of identities and what each may do. Without it, every client may do everything.
    #[arg(long, env = "FENCED_AUTH_FILE", value_name = "FILE")]
    auth_file: Option<PathBuf>,

    /// Listen on an address that other machines reach, although connections are not encrypted or
    /// every client may do everything.
    #[arg(long, env = "FENCED_INSECURE", value_parser = FalseyValueParser::new())]
    insecure: bool,

    /// Another address for /metrics, which needs no identity there. Without it, /metrics is at the
    /// address of --listen, and with an auth file only for operators.
    #[arg(long, env = "FENCED_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<String>,

    /// How the log looks on stderr.
    #[arg(long, env = "FENCED_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub(super) log_format: LogFormat,

    /// Check the configuration, the files that it names and the database, and exit. Nothing is
    /// started or changed.
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    config: Config,
}

impl Serve {
    /// Serves the database until SIGTERM or SIGINT.
    pub(super) async fn run(
        self,
        database_url: &str,
        audit_log: Option<&Path>,
    ) -> anyhow::Result<()> {
        let Self {
            listen,
            no_create,
            no_migrate,
            tls,
            auth_file,
            insecure,
            metrics_listen,
            check: checks,
            mut config,
            ..
        } = self;
        let missing_file = if no_create { MissingFile::Refuse } else { MissingFile::Create };
        let migrations = if no_migrate { Migrations::Check } else { Migrations::Apply };
        allow_open_files();
        let (terminate, interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut shutdown = Box::pin(either(terminate, interrupt));
        let authenticates = auth_file.is_some() || tls.authenticates();
        config.tls = tls.open(auth_file.is_some()).await?;
        if let Some(path) = auth_file {
            config.access = Access::from_file(path).await?;
        }
        // What reads a file of the configuration belongs before this.
        if checks {
            audit_log.map(audit::file::check).transpose()?;
            return check(&listen, database_url, missing_file, migrations).await;
        }
        config.audit_log = audit_log.map(AuditLog::open).transpose()?;
        let listener = match passed_listener()? {
            Some(listener) => listener,
            None => bind(&listen).await?,
        };
        let address = listener.local_addr()?;
        if address.ip().to_canonical().is_loopback() {
            config.hosts = Hosts::Loopback;
        } else if let Some(missing) = missing_protection(config.tls.is_some(), authenticates) {
            ensure!(
                insecure,
                "other machines can reach {address}: give {missing}, or --insecure if something \
                 else protects the server"
            );
            tracing::warn!("other machines can reach {address}, without {missing}");
        }
        if let Some(address) = metrics_listen {
            let listener = bind(&address).await?;
            tracing::info!("metrics are on http://{}/metrics", listener.local_addr()?);
            config.metrics_listener = Some(Arc::new(listener));
        }
        // Otherwise 128 connections wait at most, and those of a larger burst may be reset.
        rustix::net::listen(&listener, CONNECTIONS_WAITING)?;
        let store = tokio::select! {
            store = open_store(database_url, missing_file, migrations) => store?,
            () = &mut shutdown => bail!("stopped before the database was open"),
        };
        let mut stdout = std::io::stdout();
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        writeln!(stdout, "listening on {scheme}://{address}")?;
        stdout.flush()?;
        notify_ready();
        let shutdown = async {
            shutdown.await;
            notify_stopping();
        };
        serve(listener, store, config, shutdown).await?;
        Ok(())
    }
}

/// The options without which others on the network could read and change everything.
fn missing_protection(encrypts: bool, authenticates: bool) -> Option<&'static str> {
    match (encrypts, authenticates) {
        (true, true) => None,
        (true, false) => Some("--auth-file or --tls-client-ca"),
        (false, true) => Some("--tls-cert and --tls-key"),
        (false, false) => Some("--tls-cert, --tls-key and --auth-file"),
    }
}

async fn bind(address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("can't listen on {address}"))
}

/// Raises the limit on open files as far as the system allows: every connection is one.
fn allow_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the server has fewer connections.
    let _ = setrlimit(Resource::Nofile, limit);
}

async fn either(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
