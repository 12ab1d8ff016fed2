//! Serving, which is what the command does without a subcommand.

use std::{
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail, ensure};
use clap::{Args, builder::BoolishValueParser};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    net::{TcpListener, lookup_host},
    signal::unix::{Signal, SignalKind, signal},
};

use super::{
    check::check,
    require_file,
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
        replication::Replication,
        schema::Migrations,
    },
    tls::Tls,
};

/// How many connections may wait until they are accepted. The system may allow fewer.
const CONNECTIONS_WAITING: i32 = 4096;

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The address to listen on; port 0 takes a free port. A socket that systemd passes is used instead.
    #[arg(long, env = "FENCED_LISTEN", default_value = "127.0.0.1:8034", value_name = "ADDRESS")]
    listen: String,

    /// Don't create a database file that is missing: an empty one knows no fence.
    #[arg(long, env = "FENCED_NO_CREATE", value_parser = BoolishValueParser::new())]
    no_create: bool,

    /// Create no tables: fail unless `storage-server migrate` has.
    #[arg(long, env = "FENCED_NO_MIGRATE", value_parser = BoolishValueParser::new())]
    no_migrate: bool,

    #[command(flatten)]
    replication: Replication,

    #[command(flatten)]
    tls: TlsArguments,

    /// The file of identities and what each may do. Without it, every client may do everything.
    #[arg(long, env = "FENCED_AUTH_FILE", value_name = "FILE")]
    auth_file: Option<PathBuf>,

    /// Listen on an address that other machines reach, although connections are not encrypted or
    /// every client may do everything. This goes for --metrics-listen, too.
    #[arg(long, env = "FENCED_INSECURE", value_parser = BoolishValueParser::new())]
    insecure: bool,

    /// Another address for /metrics, which needs no identity there. If other machines reach it, it has
    /// the TLS of --listen. Without this option, /metrics is at the address of --listen, and with an
    /// auth file only for operators.
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
            replication,
            tls,
            auth_file,
            insecure,
            metrics_listen,
            check: checks,
            mut config,
            ..
        } = self;
        let missing_file = if no_create { MissingFile::Reject } else { MissingFile::Create };
        let migrations = if no_migrate { Migrations::Check } else { Migrations::Apply };
        allow_open_files();
        let (terminate, interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut shutdown = Box::pin(either(terminate, interrupt));
        // They would end the process without a drain. The files are read again without a signal.
        for harmless in [SignalKind::hangup(), SignalKind::user_defined1()] {
            drop(signal(harmless)?);
        }
        let authenticates = auth_file.is_some() || tls.authenticates();
        config.tls = tls.open(auth_file.is_some()).await?;
        let missing = missing_protection(config.tls.is_some(), authenticates);
        // Metrics need no identity, wherever they are.
        let metrics_missing = config.tls.is_none().then_some("--tls-cert and --tls-key");
        if let Some(path) = auth_file {
            require_file("--auth-file", &path)?;
            config.access = Access::from_file(path).await?;
        }
        // What reads a file of the configuration belongs before this.
        if checks {
            audit_log.map(audit::file::check).transpose()?;
            check_address(&listen, missing, insecure).await?;
            if let Some(address) = metrics_listen {
                check_address(&address, metrics_missing, insecure).await?;
            }
            return check(database_url, missing_file, migrations, &replication).await;
        }
        config.audit_log = audit_log.map(AuditLog::open).transpose()?;
        let listener = match passed_listener()? {
            Some(listener) => listener,
            None => bind(&listen).await?,
        };
        let address = listener.local_addr()?;
        if is_loopback(address) {
            config.hosts = Hosts::Loopback;
        }
        reject_unprotected(address, missing, insecure)?;
        if let Some(address) = metrics_listen {
            let listener = bind(&address).await?;
            let address = listener.local_addr()?;
            reject_unprotected(address, metrics_missing, insecure)?;
            // On this machine, nobody else reads them on their way.
            config.metrics_tls = config.tls.clone().filter(|_| !is_loopback(address));
            let scheme = scheme(config.metrics_tls.as_ref());
            tracing::info!("metrics are on {scheme}://{address}/metrics");
            config.metrics_listener = Some(Arc::new(listener));
        }
        // Otherwise 128 connections wait at most, and those of a larger burst may be reset.
        rustix::net::listen(&listener, CONNECTIONS_WAITING)?;
        let store = tokio::select! {
            store = open_store(database_url, missing_file, migrations, &replication) => store?,
            () = &mut shutdown => bail!("stopped before the database was open"),
        };
        let mut stdout = std::io::stdout();
        let scheme = scheme(config.tls.as_ref());
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

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn scheme(tls: Option<&Tls>) -> &'static str {
    if tls.is_some() { "https" } else { "http" }
}

/// Rejects an address that other machines reach without protection, unless the operator has said that
/// something else protects it.
fn reject_unprotected(
    address: SocketAddr,
    missing: Option<&str>,
    insecure: bool,
) -> anyhow::Result<()> {
    let Some(missing) = missing.filter(|_| !is_loopback(address)) else { return Ok(()) };
    ensure!(
        insecure,
        "other machines can reach {address}: give {missing}, or --insecure if something else \
         protects the server"
    );
    tracing::warn!("other machines can reach {address}, without {missing}");
    Ok(())
}

/// Checks whether the server would listen on an address, if its port is free.
async fn check_address(address: &str, missing: Option<&str>, insecure: bool) -> anyhow::Result<()> {
    let found = lookup_host(address).await.with_context(|| cannot_listen(address))?;
    for found in found {
        reject_unprotected(found, missing, insecure)?;
    }
    Ok(())
}

fn cannot_listen(address: &str) -> String {
    format!("can't listen on {address}")
}

async fn bind(address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| cannot_listen(address))
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
