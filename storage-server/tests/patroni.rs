//! Servers over a PostgreSQL that fails over by itself.

use std::time::Duration;

use testbed::{
    Patroni, StorageServer,
    patroni::{Link, Replication},
    wait::until_async,
};

use crate::{
    database::{get, offer},
    doctor::{database_at, verdict},
    programs::storage_server,
};

const ALL: [usize; 3] = [0, 1, 2];
const LONG: Duration = Duration::from_secs(120);

async fn serve(url: &str, arguments: &[&str]) -> StorageServer {
    StorageServer::start_on(&storage_server(), url, arguments).await.unwrap()
}

async fn writes(server: &StorageServer, token: u64) {
    let path = "/v1/resources/r";
    let is_written =
        async || Ok([200, 201].contains(&offer(server, "PUT", path, token, "x").await.status));
    until_async(LONG, is_written).await.unwrap();
}

#[tokio::test]
async fn doctor_finds_what_patroni_would_do() {
    for (replication, expected) in [
        (Replication::Asynchronous, "unfit-for-fence"),
        (Replication::Synchronous, "unfit-for-fence"),
        (Replication::StrictlySynchronous, "ok"),
    ] {
        let cluster = Patroni::start(replication).await.unwrap();
        let database = database_at(cluster.url_of_the_primary());
        let url = cluster.rest_url(cluster.primary_among(&ALL).await.unwrap());
        let asked = ["--patroni", url.as_str()];
        assert_eq!(verdict(&database, "patroni", &asked).await, expected, "{replication:?}");
        assert_eq!(verdict(&database, "patroni", &[]).await, "unseen");
        // Patroni promotes the synchronous one of its two standbys, if it has one.
        let standbys =
            if replication == Replication::Asynchronous { "unfit-for-fence" } else { "ok" };
        let found = database.run(&[&["doctor", "--json"], &asked[..]].concat()).await;
        let found: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
        let checks = found["checks"].as_array().unwrap().iter();
        let verdicts: Vec<_> = checks
            .filter(|check| check["name"] == "standbys")
            .map(|check| &check["verdict"])
            .collect();
        assert_eq!(verdicts, [standbys], "{found:#}");
    }
}

mod at_length {
    use super::*;

    /// Each side has a primary, and a server with clients of its own. The first of the two is the control.
    #[tokio::test]
    async fn old_token_is_accepted_beside_a_new_one_unless_standbys_are_required() {
        let required = ["--require-sync-standby", "1"];
        for (replication, arguments, expected) in [
            (Replication::Asynchronous, &[][..], 200),
            (Replication::StrictlySynchronous, &required[..], 503),
        ] {
            let mut cluster = Patroni::start(replication).await.unwrap();
            let first = cluster.primary_among(&ALL).await.unwrap();
            let old_side = serve(&cluster.socket_url(first), arguments).await;
            let new_side = serve(&cluster.url_of_the_primary(), arguments).await;
            writes(&old_side, 33).await;
            // Nothing is left that could stop the old primary.
            cluster.agent(first).unwrap().pause().await.unwrap();
            for link in [Link::Etcd, Link::Members, Link::Clients] {
                cluster.cut(first, link);
            }
            let others: Vec<_> = ALL.into_iter().filter(|&other| other != first).collect();
            cluster.primary_among(&others).await.unwrap();
            writes(&new_side, 34).await;
            // One after another, because each may take as long as an answer of PostgreSQL.
            let answers = [
                offer(&old_side, "PUT", "/v1/fences/r", 33, "").await,
                offer(&old_side, "GET", "/v1/resources/r", 33, "").await,
                offer(&old_side, "PUT", "/v1/resources/r", 33, "late").await,
            ];
            for answer in answers {
                assert_eq!(answer.status, expected, "{replication:?}: {answer:?}");
            }
            assert_eq!(get(&new_side, "/v1/fences/r").await.json()["token"], 34);
        }
    }
}
