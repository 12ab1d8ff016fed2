//! `lab bench storage`: fenced writes over HTTP.

mod object_storage;

use std::{num::NonZeroUsize, path::Path};

use anyhow::ensure;
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use futures_util::future::try_join_all;
use serde_json::json;
use tempfile::TempDir;
use testbed::{Authority, Postgres, PostgresReplica, Program, StorageServer};

use self::object_storage::OverObjectStorage;
use super::{
    etcd::Gateway,
    goal::Goal,
    load::{CONNECTIONS, Load, RESOURCES, Writes, pgbench, psql, repeat, write_all, wrk},
    null_server::NullServer,
    report::{Report, Rows},
    subject::{Subject, measure},
};
use crate::{output::Output, programs::storage_server};

const ROUNDS: usize = 5;
/// The number of resources of a large database.
const MANY_RESOURCES: u32 = 1_000_000;
/// `hello`, in base64.
const HELLO: &str = "aGVsbG8=";
const UNFENCED_TABLE: &str =
    "create table unfenced (resource text primary key, value bytea not null)";

#[derive(Args, Debug)]
pub struct StorageBench {
    /// How long to measure each figure, in five rounds of whole seconds
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    seconds: NonZeroUsize,
    #[command(flatten)]
    output: Output,
}

impl StorageBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let seconds = self.seconds.get().next_multiple_of(ROUNDS);
        let program = storage_server()?;
        let null_server = NullServer::start().await?;
        let sqlite = StorageServer::start(&program, &[]).await?;
        let folder = TempDir::with_prefix("fenced-")?;
        let auth_file = folder.path().join("auth.toml");
        let bearer = new_identity(&program, &auth_file)?;
        let auth = ["--auth-file", text(&auth_file)];
        let guarded = StorageServer::start(&program, &auth).await?;
        let authority = Authority::new()?;
        let certificate = authority.sign_for_loopback()?;
        let tls =
            ["--tls-cert", text(&certificate.certificate), "--tls-key", text(&certificate.key)];
        let encrypted = StorageServer::start(&program, &[&auth[..], &tls[..]].concat()).await?;
        let alone = Replicated::start(&program, 0).await?;
        let one_standby = Replicated::start(&program, 1).await?;
        let two_standbys = Replicated::start(&program, 2).await?;
        // Each large database is one of its own, so that the small ones stay small.
        let large_sqlite = StorageServer::start(&program, &[]).await?;
        let large_postgres = Replicated::start(&program, 0).await?;
        for large in [&large_sqlite, &large_postgres.server] {
            write_all(large.url(), MANY_RESOURCES).await?;
        }
        let objects = OverObjectStorage::start(&program).await?;
        let etcd = Gateway::start().await?;

        let mut subjects = Vec::new();
        let mut add = |subject| {
            subjects.push(subject);
            subjects.len() - 1
        };
        let over_http = |name: &'static str, writes| {
            Subject::new(name, seconds, move |seconds| wrk(writes, seconds))
        };
        let plain = |url| Writes { url, bearer: None, resources: RESOURCES, in_transaction: None };
        let hot = |url| Writes { resources: 1, ..plain(url) };
        let many = |url| Writes { resources: MANY_RESOURCES, ..plain(url) };
        let identified = |url| Writes { bearer: Some(&bearer), ..plain(url) };
        let upserts = |name: &'static str, database| {
            Subject::new(name, seconds, move |seconds| unfenced_upserts(database, seconds))
        };
        let null = add(over_http(
            "null server: the storage server over a store that does nothing",
            plain(&null_server.url),
        ));
        let few = add(over_http("storage server over SQLite", plain(sqlite.url())));
        let sqlite_hot =
            add(over_http("storage server over SQLite, one hot resource", hot(sqlite.url())));
        let sqlite_many = add(over_http(
            "storage server over SQLite, a million resources",
            many(large_sqlite.url()),
        ));
        let identities =
            add(over_http("storage server over SQLite, identities", identified(guarded.url())));
        let tls = add(over_http(
            "storage server over SQLite, identities and TLS",
            identified(encrypted.url()),
        ));
        add(over_http(
            "storage server over SQLite, transactions of two writes",
            Writes { in_transaction: Some(2), ..plain(sqlite.url()) },
        ));
        let postgres = add(over_http("storage server over PostgreSQL", plain(alone.server.url())));
        let postgres_hot = add(over_http(
            "storage server over PostgreSQL, one hot resource",
            hot(alone.server.url()),
        ));
        let postgres_many = add(over_http(
            "storage server over PostgreSQL, a million resources",
            many(large_postgres.server.url()),
        ));
        let pgbench =
            add(upserts("pgbench, unfenced upserts straight into PostgreSQL", &alone.primary));
        let with_one = add(over_http(
            "storage server over PostgreSQL, one synchronous standby",
            plain(one_standby.server.url()),
        ));
        let pgbench_with_one =
            add(upserts("pgbench, one synchronous standby", &one_standby.primary));
        let with_two = add(over_http(
            "storage server over PostgreSQL, two synchronous standbys",
            plain(two_standbys.server.url()),
        ));
        let pgbench_with_two =
            add(upserts("pgbench, two synchronous standbys", &two_standbys.primary));
        add(over_http(
            "storage server over object storage, a resource for each connection",
            Writes { resources: CONNECTIONS, ..plain(objects.server.url()) },
        ));
        add(over_http(
            "storage server over object storage, one hot resource",
            hot(objects.server.url()),
        ));
        add(Subject::new(
            "unfenced conditional writes straight into object storage",
            seconds,
            |seconds| objects.conditional_writes(seconds),
        ));
        add(Subject::new(
            "etcd of one node, conditional puts, a key for each connection",
            seconds,
            |seconds| conditional_puts(&etcd, seconds),
        ));
        measure("storage", &mut subjects, ROUNDS).await?;
        let requests_per_write = objects.requests_per_write().await?;

        let mut report = Report::default();
        report.value("bench", "storage");
        report.value("connections", CONNECTIONS);
        report.value("seconds", seconds);
        report.line(format_args!(
            "Fenced writes of 5 bytes over HTTP, {CONNECTIONS} connections, {seconds} s each in \
             {ROUNDS} rounds\n"
        ));
        report.table(
            Rows::new("figures", &subjects)
                .subjects("")
                .figure("writes/s", "writes_per_second", 0, |subject| Some(subject.figure()))
                .figure("p50 ms", "p50_ms", 1, |subject| subject.median(|load| load.p50_ms))
                // So that a rare stall is seen.
                .figure("worst p99 ms", "p99_ms", 1, |subject| {
                    subject.samples().filter_map(|load| load.p99_ms).reduce(f64::max)
                })
                // The key has an old name, because earlier results have it.
                .figure("of null server", "of_floor", 2, |subject| {
                    Some(subject.ratio(&subjects[null]))
                })
                .figure("of pgbench", "of_pgbench", 2, |subject| {
                    Some(subject.ratio(&subjects[pgbench]))
                }),
        );
        report.value("requests_per_write", requests_per_write);
        report.line(format_args!(
            "Requests to object storage for each write of one client: {requests_per_write:.2}\n"
        ));
        let at_least = |name: &str, bound, part: usize, whole: usize| {
            Goal::at_least(name, bound, subjects[part].ratio(&subjects[whole]))
        };
        report.goals(&[
            at_least("SQLite of the null server", 0.6, few, null),
            at_least("PostgreSQL of the null server", 0.5, postgres, null),
            at_least("PostgreSQL of pgbench", 1.2, postgres, pgbench),
            at_least("one standby, of pgbench", 0.8, with_one, pgbench_with_one),
            at_least("two standbys, of pgbench", 0.8, with_two, pgbench_with_two),
            Goal::at_most("object storage, requests per write", 1.1, requests_per_write),
            at_least("SQLite, a million of few", 0.75, sqlite_many, few),
            at_least("SQLite, identities of none", 0.85, identities, few),
            at_least("SQLite, identities and TLS of none", 0.6, tls, few),
            at_least("PostgreSQL, a million of few", 0.75, postgres_many, postgres),
            at_least("SQLite, hot of spread", 0.1, sqlite_hot, few),
            at_least("PostgreSQL, hot of spread", 0.1, postgres_hot, postgres),
        ]);
        self.output.print(&report)
    }
}

/// A PostgreSQL whose commits wait for all of its standbys, and a storage server over it.
struct Replicated {
    server: StorageServer,
    primary: Postgres,
    _standbys: Vec<PostgresReplica>,
}

impl Replicated {
    async fn start(program: &Program, standbys: usize) -> anyhow::Result<Self> {
        let primary = Postgres::start().await?;
        let mut replicas = Vec::new();
        for _ in 0..standbys {
            replicas.push(primary.start_replica().await?);
        }
        if standbys > 0 {
            psql(
                &primary,
                &format!("alter system set synchronous_standby_names = '{standbys} (*)'"),
            )
            .await?;
            psql(&primary, "select pg_reload_conf()").await?;
        }
        let server = StorageServer::start_on(program, &primary.url(), &[]).await?;
        psql(&primary, UNFENCED_TABLE).await?;
        Ok(Self { server, primary, _standbys: replicas })
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the folders of this program are UTF-8")
}

/// Adds an identity that may write what the bench does, and returns its bearer token.
fn new_identity(program: &Program, auth_file: &Path) -> anyhow::Result<String> {
    let output = program
        .command()
        .args(["auth", "new", "--name", "bench", "--prefix", "bench/", "--allow", "write"])
        .arg("--auth-file")
        .arg(auth_file)
        .output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "no identity was made: {error}");
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// Measures single upserts straight into the database.
async fn unfenced_upserts(database: &Postgres, seconds: usize) -> anyhow::Result<Load> {
    let upsert = format!(
        "\\set n random(0, {RESOURCES} - 1)\n\
         insert into unfenced values ('bench/' || :n, 'hello') \
         on conflict (resource) do update set value = excluded.value;\n"
    );
    pgbench(database, &upsert, CONNECTIONS, format!("--time={seconds}")).await
}

/// Measures transactions that put a key if nobody has changed it since the last put: what a user would
/// take without a storage server. Each client has a key and a connection of its own.
async fn conditional_puts(etcd: &Gateway, seconds: usize) -> anyhow::Result<Load> {
    let put = |key: &str| json!({ "request_put": { "key": key, "value": HELLO } });
    let created = try_join_all((0..CONNECTIONS).map(async |client| {
        let (etcd, key) = (etcd.another_client(), BASE64_STANDARD.encode(client.to_string()));
        let answer = etcd.call("kv/put", &json!({ "key": key, "value": HELLO })).await?;
        anyhow::Ok((etcd, key, answer["header"]["revision"].clone()))
    }));
    let clients = created.await?.into_iter().map(|(etcd, key, mut revision)| {
        async move || {
            revision = etcd.change_if(&key, &revision, put(&key)).await?;
            anyhow::Ok(())
        }
    });
    repeat(clients, seconds).await
}
