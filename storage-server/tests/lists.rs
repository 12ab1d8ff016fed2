//! Lists of resources, in pages.

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, PgConnection};
use testbed::wait::until_async;

use crate::{
    database::{Database, get, offer},
    on_both_databases::on_all_stores,
    world::World,
};

on_all_stores!(&[] => lists_come_in_pages_in_byte_order,);

async fn lists_come_in_pages_in_byte_order(world: World) {
    for name in ["b/1", "a", "b/2", "%C5%BC", "B", "b", "gone"] {
        let path = format!("/v1/resources/{name}");
        world.put(&path, &[("Fencing-Token", "7")], "12345").await;
    }
    world.ask("DELETE", "/v1/resources/gone", &[("Fencing-Token", "7")]).await;
    world.ask("PUT", "/v1/fences/claimed", &[("Fencing-Token", "7")]).await;

    let list = async |query: &str| {
        let answer = world.ask("GET", &format!("/v1/resources{query}"), &[]).await;
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        answer.json()
    };
    let names = |list: &serde_json::Value| -> Vec<String> {
        let resources = list["resources"].as_array().unwrap().iter();
        resources.map(|listed| listed["resource"].as_str().unwrap().to_owned()).collect()
    };
    let all = list("").await;
    assert_eq!(names(&all), ["B", "a", "b", "b/1", "b/2", "ż"]);
    assert!(all["next"].is_null());
    assert_eq!(all["resources"][0], json!({"resource": "B", "token": 7, "version": 1, "size": 5}));

    let page = list("?limit=2").await;
    assert_eq!((names(&page), &page["next"]), (vec!["B".into(), "a".into()], &json!("a")));
    let page = list("?limit=4&after=a").await;
    assert_eq!((names(&page).len(), &page["next"]), (4, &json!(null)), "the last page has no next");
    assert_eq!(names(&list("?prefix=b/").await), ["b/1", "b/2"]);
    assert_eq!(names(&list("?prefix=b&after=b/1").await), ["b/2"]);
    assert_eq!(names(&list("?prefix=%C5%BC").await), ["ż"]);
    assert!(names(&list("?prefix=zzz").await).is_empty());

    for bad in ["?limit=0", "?limit=1001", "?limit=x", "?limit=-1", "?prefix=%00", "?typo=1"] {
        let answer = world.ask("GET", &format!("/v1/resources{bad}"), &[]).await;
        assert_eq!(answer.problem(), "400 malformed-request", "{bad}");
    }
}

#[tokio::test]
async fn page_ends_early_among_many_names_without_a_value_in_sqlite() {
    page_ends_early(Database::sqlite()).await;
}

#[tokio::test]
async fn page_ends_early_among_many_names_without_a_value_in_postgres() {
    page_ends_early(Database::postgres().await).await;
}

/// Otherwise one request would read all fences of the database, and hold up other lists.
async fn page_ends_early(database: Database) {
    const NAMES: usize = 10_000;
    let server = database.serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/resources/z", 1, "x").await.status, 201);
    let fill = format!(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < {NAMES})
         insert into storage.resource (resource, token, holder, version) select 'a/' || i, 1, '', 0 from n"
    );
    database.execute(&fill).await.unwrap();
    let list = async |query: &str| {
        let listed = get(&server, &format!("/v1/resources?{query}")).await.json();
        (listed["resources"].as_array().unwrap().len(), listed["next"].clone())
    };
    let (mut pages, mut after) = (0, String::new());
    loop {
        let (resources, next) = list(&format!("after={after}")).await;
        pages += 1;
        let Some(next) = next.as_str() else {
            assert_eq!(resources, 1, "the last page has the value");
            break;
        };
        assert_eq!(resources, 0);
        assert!(*next > *after, "{next} is after {after}");
        after = next.to_owned();
    }
    assert_eq!(pages, NAMES / 4096 + 1);
    // The control: a page that has no such names before its resources ends with the last of them.
    assert_eq!(list("prefix=z").await, (1, json!(null)));
    assert_eq!(list("after=b").await, (1, json!(null)));
}

#[tokio::test]
async fn list_with_a_prefix_reads_no_other_part_of_the_table() {
    let world = World::on_postgres(&[]).await;
    let postgres = world.postgres.as_ref().unwrap();
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    let fill = "insert into storage.resource
        select prefix || i, 1, '', 1, 'text/plain', 'x'::bytea, 1, ''
        from generate_series(1, 3000) i cross join (values ('a/'), ('z/')) as p (prefix)
        union all select 'm/' || i, 1, '', 1, 'text/plain', 'x'::bytea, 1, '' from generate_series(1, 3) i";
    sqlx::query(fill).execute(&mut connection).await.unwrap();
    sqlx::query("select pg_stat_reset()").execute(&mut connection).await.unwrap();
    let listed = world.ask("GET", "/v1/resources?prefix=m/", &[]).await;
    assert_eq!(listed.json()["resources"].as_array().unwrap().len(), 3);
    let rows = "select coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::bigint
        from pg_stat_user_tables where relname = 'resource'";
    // Sessions report their counts a little later.
    let rows_read = async || -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&postgres.url()).await?;
        Ok(sqlx::query_scalar(rows).fetch_one(&mut connection).await?)
    };
    until_async(Duration::from_secs(20), async || Ok(rows_read().await? > 0)).await.unwrap();
    let read = rows_read().await.unwrap();
    assert!(read < 10, "{read} rows were read for a list of 3");
}
