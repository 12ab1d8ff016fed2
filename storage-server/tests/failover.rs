//! A PostgreSQL of several hosts, of which another one becomes the primary.

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, PgConnection, query_scalar};
use testbed::{Postgres, PostgresReplica, StorageServer, wait::until_async};
use tokio::join;

use crate::{
    database::{Database, offer},
    programs::storage_server,
    readiness::until_ready,
    required_standbys::{set_names, waiting},
    transactions, wire,
};

/// A server must write again within this time after a promotion.
const AFTER_PROMOTION: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(60);

/// A primary, a replica that has all of its data, and a server that knows both.
struct Cluster {
    primary: Postgres,
    replica: PostgresReplica,
    server: StorageServer,
}

async fn serve(url: &str) -> StorageServer {
    StorageServer::start_on(&storage_server(), url, &[]).await.unwrap()
}

impl Cluster {
    async fn start() -> Self {
        let primary = Postgres::start().await.unwrap();
        let replica = primary.start_replica().await.unwrap();
        // The replica comes first, and is not taken for the primary.
        let server = serve(&url(&[replica.server(), &primary])).await;
        let written = offer(&server, "PUT", "/v1/resources/r", 1, "one").await;
        assert_eq!(written.status, 201, "{}", written.text());
        replica.catch_up(&primary).await.unwrap();
        Self { primary, replica, server }
    }

    /// Promotes the replica, and waits until the server writes to it.
    async fn fail_over(&self, token: u64) {
        self.replica.cut();
        self.replica.promote().await.unwrap();
        writes_within(AFTER_PROMOTION, &self.server, token).await;
        assert_eq!(token_in(&self.replica.url()).await, token);
    }
}

fn url(servers: &[&Postgres]) -> String {
    format!("{}?target_session_attrs=read-write", Postgres::url_of_all(servers))
}

/// The token of the fence, as a database has it.
async fn token_in(url: &str) -> u64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let token = "select token from storage.resource where resource = 'r'";
    let token: i64 = query_scalar(token).fetch_one(&mut connection).await.unwrap();
    u64::try_from(token).unwrap()
}

async fn write(server: &StorageServer, token: u64) -> wire::Answer {
    offer(server, "PUT", "/v1/resources/r", token, "x").await
}

async fn writes_within(within: Duration, server: &StorageServer, token: u64) {
    until_async(within, async || Ok(write(server, token).await.status == 200)).await.unwrap();
}

#[tokio::test]
async fn server_follows_a_primary_that_crashed() {
    let mut cluster = Cluster::start().await;
    assert_eq!(write(&cluster.server, 33).await.status, 200, "it knows this row now");
    cluster.replica.catch_up(&cluster.primary).await.unwrap();
    cluster.primary.crash().await.unwrap();
    // The control: without a promotion, nothing is written.
    assert_eq!(write(&cluster.server, 34).await.status, 503);
    assert_eq!(token_in(&cluster.replica.url()).await, 33);
    cluster.fail_over(34).await;
    until_ready(cluster.server.url(), 200).await;
    assert_eq!(write(&cluster.server, 33).await.problem(), "412 stale-token");
}

/// The old primary does not know of the failover, and goes on as one.
#[tokio::test]
async fn primary_that_was_paused_is_not_used_again() {
    let mut cluster = Cluster::start().await;
    cluster.primary.pause().await.unwrap();
    cluster.fail_over(34).await;
    cluster.primary.resume().unwrap();
    let answers_again = async || Ok(token_in(&cluster.primary.url()).await == 1);
    until_async(PATIENCE, answers_again).await.unwrap();
    for token in 35..55 {
        assert_eq!(write(&cluster.server, token).await.status, 200);
    }
    // With the new primary down, nothing but the old one is left.
    cluster.replica.crash().await.unwrap();
    for _ in 0..5 {
        let rejected = write(&cluster.server, 55).await;
        assert_eq!(rejected.status, 503, "{}", rejected.text());
    }
    assert_eq!(token_in(&cluster.primary.url()).await, 1);
    // The control: a server that has not seen the failover accepts a stale write there.
    let server = serve(&cluster.primary.url()).await;
    assert_eq!(write(&server, 2).await.status, 200);
}

/// A commit waits on a primary that is cut off, and is carried out there after the failover.
async fn commit_under_way_is_not_accepted(resources: &[&str]) {
    let cluster = Cluster::start().await;
    let commit = async |token| {
        if let [resource] = resources {
            let path = format!("/v1/resources/{resource}");
            return offer(&cluster.server, "PUT", &path, token, "x").await;
        }
        let writes = resources.iter().map(|resource| transactions::write(resource, token, "x"));
        let transaction = json!({"writes": writes.collect::<Vec<_>>()});
        transactions::transact(&cluster.server, &transaction).await
    };
    for _ in 0..2 {
        // The server knows the rows then, and sends the next change without a load.
        assert!([200, 201].contains(&commit(33).await.status));
    }
    set_names(&cluster.primary, "*").await;
    cluster.replica.catch_up(&cluster.primary).await.unwrap();
    cluster.replica.cut();
    let (answer, ()) = join!(commit(34), async {
        until_async(PATIENCE, async || Ok(waiting(&cluster.primary, 0.0).await == 1))
            .await
            .unwrap();
        cluster.replica.promote().await.unwrap();
        let follows = async || Ok(cluster.server.log()?.contains("the primary is now"));
        until_async(PATIENCE, follows).await.unwrap();
        set_names(&cluster.primary, "").await;
    });
    assert_eq!((answer.status, &answer.json()["outcome"]), (503, &"unknown".into()));
    // The control: the old primary has carried it out, and the new one has not.
    for (url, expected) in [(cluster.primary.url(), 34), (cluster.replica.url(), 33)] {
        // The commit goes on once its session has read the setting.
        let has_expected = async || {
            let mut connection = PgConnection::connect(&url).await?;
            let tokens = "select token from storage.resource where resource in ('s', 't')";
            let tokens: Vec<i64> = query_scalar(tokens).fetch_all(&mut connection).await?;
            Ok(tokens == vec![expected; resources.len()])
        };
        until_async(PATIENCE, has_expected).await.unwrap();
    }
}

#[tokio::test]
async fn commit_under_way_on_an_old_primary_is_not_accepted() {
    commit_under_way_is_not_accepted(&["s"]).await;
}

#[tokio::test]
async fn transaction_under_way_on_an_old_primary_is_not_accepted() {
    commit_under_way_is_not_accepted(&["s", "t"]).await;
}

/// Both take writes, and clients reach both. Without a look at the timelines, the server would stay.
#[tokio::test]
async fn server_leaves_a_primary_that_goes_on_after_a_promotion() {
    let cluster = Cluster::start().await;
    cluster.replica.cut();
    cluster.replica.promote().await.unwrap();
    let is_left = async || {
        let written = write(&cluster.server, 34).await.status == 200;
        Ok(written && token_in(&cluster.replica.url()).await == 34)
    };
    until_async(AFTER_PROMOTION, is_left).await.unwrap();
    // The control: the old one still takes writes.
    let server = serve(&cluster.primary.url()).await;
    assert_eq!(write(&server, 35).await.status, 200);
    // A server that starts now chooses the new one, in any order.
    let Cluster { primary, replica, .. } = cluster;
    for servers in [[&primary, replica.server()], [replica.server(), &primary]] {
        let server = serve(&url(&servers)).await;
        assert_eq!(write(&server, 34).await.status, 200);
    }
    assert_eq!(token_in(&primary.url()).await, 35);
    assert_eq!(token_in(&replica.url()).await, 34);
}

/// Two replicas of one primary were promoted. Both are at timeline 2, with writes of their own.
#[tokio::test]
async fn none_of_two_primaries_on_one_timeline_is_used() {
    let mut cluster = Cluster::start().await;
    let mut other = cluster.primary.start_replica().await.unwrap();
    let all = url(&[&cluster.primary, cluster.replica.server(), other.server()]);
    let server = serve(&all).await;
    assert_eq!(write(&server, 2).await.status, 200);
    cluster.replica.catch_up(&cluster.primary).await.unwrap();
    other.catch_up(&cluster.primary).await.unwrap();
    cluster.primary.crash().await.unwrap();
    cluster.replica.promote().await.unwrap();
    writes_within(AFTER_PROMOTION, &server, 34).await;
    other.promote().await.unwrap();
    let is_rejected = async || Ok(write(&server, 34).await.status == 503);
    until_async(PATIENCE, is_rejected).await.unwrap();
    let rejected = write(&server, 34).await;
    assert_eq!(rejected.json()["outcome"], "none");
    assert!(rejected.text().contains("same timeline"), "{}", rejected.text());
    assert_eq!(token_in(&other.url()).await, 2);
    let another = Database { url: all, folder: tempfile::tempdir().unwrap(), postgres: None };
    let error = another.run(&["fence", "set", "r", "--token", "3"]).await.failed();
    assert!(error.contains("same timeline"), "{error}");
    // The control: with one of them, it writes.
    other.crash().await.unwrap();
    writes_within(PATIENCE, &server, 35).await;
    assert_eq!(token_in(&cluster.replica.url()).await, 35);
}

/// A host that accepts connections and never answers holds up neither the start nor a command.
#[tokio::test]
async fn host_that_hangs_holds_up_nothing() {
    let cluster = Cluster::start().await;
    cluster.replica.server().pause().await.unwrap();
    let all = url(&[cluster.replica.server(), &cluster.primary]);
    let server = serve(&all).await;
    for token in 2..20 {
        assert_eq!(write(&server, token).await.status, 200);
        assert_eq!(write(&cluster.server, token).await.status, 200);
    }
    let database = Database { url: all, folder: tempfile::tempdir().unwrap(), postgres: None };
    database.run(&["fence", "set", "r", "--token", "40"]).await.printed();
    assert_eq!(write(&server, 39).await.problem(), "412 stale-token");
    cluster.replica.server().resume().unwrap();
}

/// Commands of an operator change the primary, and nothing if there is none.
#[tokio::test]
async fn commands_find_the_primary() {
    let mut cluster = Cluster::start().await;
    let all = url(&[cluster.replica.server(), &cluster.primary]);
    let database = Database { url: all, folder: tempfile::tempdir().unwrap(), postgres: None };
    database.run(&["migrate"]).await.printed();
    database.run(&["fence", "set", "r", "--token", "33"]).await.printed();
    assert!(database.run(&["fence", "show", "r"]).await.printed().contains("token 33"));
    database.run(&["fence", "raise", "--all", "--above", "30"]).await.printed();
    assert_eq!(write(&cluster.server, 32).await.problem(), "412 stale-token");
    database.run(&["--check"]).await.printed();
    database.run(&["forget", "r", "--yes"]).await.printed();
    assert_eq!(write(&cluster.server, 31).await.status, 201);

    cluster.primary.crash().await.unwrap();
    for command in [&["fence", "show", "r"][..], &["migrate"], &["--check"]] {
        let error = database.run(command).await.failed();
        assert!(error.contains("no host is the newest primary"), "{error}");
        assert!(error.contains("a standby at timeline 1"), "{error}");
    }
}

/// A name of the primary, such as that of a proxy, leads to an old one again.
#[tokio::test]
async fn address_that_leads_back_to_an_old_primary_is_rejected() {
    let primary = Postgres::start().await.unwrap();
    let replica = primary.start_replica().await.unwrap();
    let proxy = testbed::Proxy::start(socket(&primary)).await.unwrap();
    let by_proxy = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address());
    let server = serve(&by_proxy).await;
    assert_eq!(write(&server, 1).await.status, 201);
    replica.catch_up(&primary).await.unwrap();
    replica.cut();
    replica.promote().await.unwrap();
    let lead_to = async |postgres: &Postgres| {
        proxy.switch_to(socket(postgres));
        proxy.cut();
        proxy.mend();
    };
    lead_to(replica.server()).await;
    writes_within(AFTER_PROMOTION, &server, 34).await;
    lead_to(&primary).await;
    for _ in 0..5 {
        assert_eq!(write(&server, 35).await.status, 503);
    }
    assert_eq!(token_in(&primary.url()).await, 1);
    // The control: a server that knows nothing of the new one writes there.
    assert_eq!(write(&serve(&by_proxy).await, 2).await.status, 200);
    lead_to(replica.server()).await;
    writes_within(PATIENCE, &server, 36).await;
}

fn socket(postgres: &Postgres) -> std::path::PathBuf {
    postgres.socket_folder().join(format!(".s.PGSQL.{}", postgres.port()))
}
