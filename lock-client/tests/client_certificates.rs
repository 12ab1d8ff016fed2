//! A Redis that asks its clients for certificates, as it does by default if it takes TLS.

use std::{fs, net::TcpListener, path::Path, time::Duration};

use lock_client::{
    Lease, Locks,
    redlock::{Redlock, operator::Operator},
};
use tempfile::TempDir;
use testbed::{Authority, Redis, Sentinels, wait::until_async};

use crate::{
    lock_service::{
        impatient_locks, lasting, locks, tried, ttl, until_listening, waiting, with_causes,
    },
    names::name,
};

const SOON: Duration = Duration::from_secs(30);

/// The settings of a URL with the certificates for a Redis.
fn certificates(redis: &Redis) -> String {
    let (certificate, key) = redis.client_certificate().unwrap();
    let authority = redis.ca_file().unwrap();
    let [authority, certificate, key] = [&authority, &certificate, &key].map(|file| file.display());
    format!("tls-ca={authority}&tls-cert={certificate}&tls-key={key}")
}

#[tokio::test]
async fn client_with_a_certificate_may_lock() {
    let redis = Redis::start_mutual_tls(&[]).await.unwrap();
    let locks = locks(&format!("{}?{}", redis.url(), certificates(&redis)));
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    let waiter = waiting(&redis, &locks, lasting().wait(SOON)).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();

    // The controls: no certificate, and one of another authority.
    let other = Redis::start_mutual_tls(&[]).await.unwrap();
    let (certificate, key) = other.client_certificate().unwrap();
    let trusted = format!("{}?tls-ca={}", redis.url(), redis.ca_file().unwrap().display());
    let foreign = format!("{trusted}&tls-cert={}&tls-key={}", certificate.display(), key.display());
    for (url, reason) in [(trusted, "CertificateRequired"), (foreign, "UnknownCA")] {
        // On a busy machine the handshake may also time out.
        let rejected_for_its_certificate = async || {
            let rejected =
                impatient_locks(&url).acquire(&name("r"), tried(60_000)).await.unwrap_err();
            Ok(with_causes(&rejected).contains(reason))
        };
        until_async(SOON, rejected_for_its_certificate).await.expect(reason);
    }
}

/// Starts a Cluster of one node that takes encrypted connections.
async fn cluster() -> Redis {
    let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let alone = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", &bus];
    let address = ["--cluster-announce-ip", "127.0.0.1"];
    let redis = Redis::start_mutual_tls(&[&alone[..], &address].concat()).await.unwrap();
    let _: () = redis.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    let is_ready = async || {
        let info: String = redis.command(&["CLUSTER", "INFO"]).await?;
        Ok(info.contains("cluster_state:ok"))
    };
    until_async(SOON, is_ready).await.unwrap();
    redis
}

#[tokio::test]
async fn client_with_a_certificate_may_lock_in_a_cluster() {
    let redis = cluster().await;
    let url = redis.url().replace("rediss://", "rediss+cluster://");
    let locks = locks(&format!("{url}?{}", certificates(&redis)));
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    let waiter = waiting(&redis, &locks, lasting().wait(SOON)).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn client_with_a_certificate_may_lock_behind_sentinels() {
    let mut world = Sentinels::start_mutual_tls().await.unwrap();
    let url = format!("{}?{}", world.url(), certificates(world.primary()));
    let locks = locks(&url);
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    let waiter = waiting(world.primary(), &locks, lasting().wait(SOON)).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// The files of a client, which are renewed while it runs.
struct Files(TempDir);

impl Files {
    /// Copies the files that a Redis accepts.
    fn of(redis: &Redis) -> Self {
        let files = Self(TempDir::new().unwrap());
        files.copy_from(redis);
        files
    }

    fn copy_from(&self, redis: &Redis) {
        let (certificate, key) = redis.client_certificate().unwrap();
        self.replace(&redis.ca_file().unwrap(), &certificate, &key);
    }

    fn replace(&self, authority: &Path, certificate: &Path, key: &Path) {
        for (name, file) in [("ca.pem", authority), ("c.pem", certificate), ("c.key", key)] {
            fs::copy(file, self.0.path().join(name)).unwrap();
        }
    }

    fn settings(&self) -> String {
        let folder = self.0.path().display();
        format!("tls-ca={folder}/ca.pem&tls-cert={folder}/c.pem&tls-key={folder}/c.key")
    }
}

async fn cut_connections(redis: &Redis) {
    for kind in ["normal", "pubsub"] {
        let _: u64 = redis.command(&["CLIENT", "KILL", "TYPE", kind]).await.unwrap();
    }
}

async fn until_renewed(lease: &Lease) {
    until_async(SOON, async || Ok(lease.renew().await.is_ok())).await.expect("it is renewed");
}

/// The authority of all certificates is renewed while a client holds the lock, and another waits.
async fn assert_goes_on_with_another_authority(redis: &Redis, files: &Files, locks: &Locks) {
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    let waiter = waiting(redis, locks, lasting().wait(SOON)).await;
    let authority = Authority::new().unwrap();
    let [server, client] = [(); 2].map(|()| authority.sign_for_loopback().unwrap());
    let file = |path: &Path| path.display().to_string();
    let (ca_file, certificate, key) =
        (file(&authority.ca_file()), file(&server.certificate), file(&server.key));
    let names = [("tls-ca-cert-file", &ca_file), ("tls-cert-file", &certificate)];
    let mut renew = vec!["CONFIG", "SET", "tls-key-file", &key];
    renew.extend(names.iter().flat_map(|(name, file)| [*name, file.as_str()]));
    let _: () = redis.command(&renew).await.unwrap();
    cut_connections(redis).await;
    // The control: the old certificates are of no use.
    for _ in 0..2 {
        lease.renew().await.unwrap_err();
    }
    files.replace(&authority.ca_file(), &client.certificate, &client.key);
    until_renewed(&lease).await;
    until_listening(redis, 1).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().expect("it is notified").release().await.unwrap();
}

#[tokio::test]
async fn authority_that_is_renewed_on_disk_ends_no_lease() {
    let redis = Redis::start_mutual_tls(&[]).await.unwrap();
    let files = Files::of(&redis);
    let locks = locks(&format!("{}?{}", redis.url(), files.settings()));
    assert_goes_on_with_another_authority(&redis, &files, &locks).await;
}

#[tokio::test]
async fn authority_that_is_renewed_on_disk_ends_no_lease_in_a_cluster() {
    let redis = cluster().await;
    let files = Files::of(&redis);
    let url = redis.url().replace("rediss://", "rediss+cluster://");
    // Connections that fail are found at the time-out.
    let locks = impatient_locks(&format!("{url}?{}", files.settings()));
    assert_goes_on_with_another_authority(&redis, &files, &locks).await;
}

/// Each new connection has the certificate that is on disk: one of a foreign authority is rejected,
/// and one that is good again is accepted.
async fn assert_reads_again(lease: Lease, redis: &[&Redis], files: &[Files]) {
    let foreign = Redis::start_mutual_tls(&[]).await.unwrap();
    for files in files {
        files.copy_from(&foreign);
    }
    for redis in redis {
        cut_connections(redis).await;
    }
    for _ in 0..2 {
        lease.renew().await.unwrap_err();
    }
    for (redis, files) in redis.iter().zip(files) {
        files.copy_from(redis);
    }
    until_renewed(&lease).await;
    lease.release().await.unwrap();
}

#[tokio::test]
async fn certificates_are_read_again_behind_sentinels() {
    let mut world = Sentinels::start_mutual_tls().await.unwrap();
    let files = Files::of(world.primary());
    let locks = locks(&format!("{}?{}", world.url(), files.settings()));
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    assert_reads_again(lease, &[world.primary()], &[files]).await;
}

#[tokio::test]
async fn certificates_are_read_again_with_redlock() {
    let (mut nodes, mut files) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        nodes.push(Redis::start_mutual_tls(&[]).await.unwrap());
        files.push(Files::of(nodes.last().unwrap()));
    }
    let urls = nodes.iter().zip(&files);
    let urls: Vec<_> =
        urls.map(|(node, files)| format!("{}?{}", node.url(), files.settings())).collect();
    let operator = Operator::new(&urls).unwrap();
    operator.start_cluster(ttl(60_000)).await.unwrap();
    let locks = Locks::new(Redlock::open(&urls).unwrap());
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    assert_reads_again(lease, &nodes.iter().collect::<Vec<_>>(), &files).await;
}
