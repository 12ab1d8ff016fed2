//! Encrypted connections. Each command has its own environment, with the certificates to trust.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use lock_client::{mariadb, postgres};
use sqlx::{Connection, MySqlConnection, PgConnection};
use testbed::{
    Etcd, MariaDb, Postgres, Proxy, Redis, ZooKeeper, process::Process, proxy::Upstream,
    wait::until_async,
};
use tokio::time::sleep;

use crate::{
    command::{PATIENCE, command, output},
    programs::LOCK_CLIENT,
};

#[tokio::test]
async fn encrypted_redis_is_used_if_its_certificate_is_trusted() {
    let redis = Redis::start_tls().await.unwrap();
    let (url, ca_file) = (redis.url(), redis.ca_file().unwrap());
    let status = async |ca_file| {
        let mut command = Command::new(LOCK_CLIENT);
        command.args(["status", "r", "--locks", &url]).env("SSL_CERT_FILE", ca_file);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    let trusted = status(ca_file).await;
    assert_eq!(trusted.status.code(), Some(0), "{trusted:?}");
    let other = Redis::start_tls().await.unwrap();
    let rejected_for_its_certificate = async || {
        let distrusted = status(other.ca_file().unwrap()).await;
        assert_eq!(distrusted.status.code(), Some(69), "{distrusted:?}");
        // On a busy machine the handshake may also time out.
        let stderr = String::from_utf8_lossy(&distrusted.stderr).into_owned();
        Ok(stderr.contains("certificate"))
    };
    until_async(PATIENCE, rejected_for_its_certificate).await.unwrap();
}

/// A server that takes encrypted connections, behind a proxy, and the file of its authority.
struct Encrypted {
    url: String,
    proxy: Proxy,
    authority: PathBuf,
}

impl Encrypted {
    /// The URL has `PROXY` for the address of the proxy.
    async fn new(upstream: impl Into<Upstream>, url: &str, authority: &Path) -> Self {
        let proxy = Proxy::start(upstream).await.unwrap();
        let url = url.replace("PROXY", &proxy.address().to_string());
        Self { url, proxy, authority: authority.to_owned() }
    }

    /// The file that `SSL_CERT_FILE` names is half written while all connections are made again.
    async fn keeps_the_last_good_authorities(&self) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        fs::copy(&self.authority, &file).unwrap();
        let arguments = ["run", "r", "--ttl", "4s", "--locks", &self.url, "--", "sleep", "60"];
        let mut run = command(&arguments);
        run.env("SSL_CERT_FILE", &file).env("RUST_LOG", "warn");
        let mut run = Process::spawn("run", &run, folder.path()).unwrap();
        let is_held = async || {
            let mut status = command(&["status", "r", "--locks", &self.url]);
            status.env("SSL_CERT_FILE", &self.authority);
            Ok(String::from_utf8(output(status).await.stdout).unwrap().contains("\"held\":true"))
        };
        until_async(PATIENCE, is_held).await.unwrap();
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        self.proxy.cut();
        self.proxy.mend();
        // Longer than the ttl.
        sleep(Duration::from_secs(6)).await;
        let log = run.stderr().unwrap();
        assert!(!run.has_ended().unwrap(), "{}: {log}", self.url);
        assert!(log.contains("the last good ones are used"), "{}: {log}", self.url);
    }
}

#[tokio::test]
async fn file_of_authorities_that_is_half_written_ends_no_lease_in_redis() {
    let redis = Redis::start_tls().await.unwrap();
    let (address, authority) = (redis.address().unwrap(), redis.ca_file().unwrap());
    let redis = Encrypted::new(address, "rediss://PROXY", &authority).await;
    redis.keeps_the_last_good_authorities().await;
}

#[tokio::test]
async fn file_of_authorities_that_is_half_written_ends_no_lease_in_etcd() {
    let etcd = Etcd::start_tls().await.unwrap();
    let proxied = Encrypted::new(etcd.address(0), "etcds://PROXY", &etcd.ca_file()).await;
    proxied.keeps_the_last_good_authorities().await;
}

#[tokio::test]
async fn file_of_authorities_that_is_half_written_ends_no_lease_in_zookeeper() {
    let zookeeper = ZooKeeper::start_tls().await.unwrap();
    let (address, authority) = (zookeeper.address(0), zookeeper.ca_file());
    let proxied = Encrypted::new(address, "zookeepers://PROXY", &authority).await;
    proxied.keeps_the_last_good_authorities().await;
}

#[tokio::test]
async fn file_of_authorities_that_is_half_written_ends_no_lease_in_postgres() {
    let server = Postgres::start_tls().await.unwrap();
    let mut administrator = PgConnection::connect(&server.url()).await.unwrap();
    postgres::install(&mut administrator).await.unwrap();
    // It takes encrypted connections only at its port.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let url = "postgres://postgres@PROXY/postgres?sslmode=verify-full";
    let proxied = Encrypted::new(address, url, &server.ca_file()).await;
    proxied.keeps_the_last_good_authorities().await;
}

#[tokio::test]
async fn file_of_authorities_that_is_half_written_ends_no_lease_in_mariadb() {
    let server = MariaDb::start_tls().await.unwrap();
    let mut administrator = MySqlConnection::connect(&server.url()).await.unwrap();
    mariadb::install(&mut administrator).await.unwrap();
    let url = "mariadb://root@PROXY/test?ssl-mode=VERIFY_IDENTITY";
    let proxied = Encrypted::new(server.socket(), url, &server.ca_file()).await;
    proxied.keeps_the_last_good_authorities().await;
}
