//! A schema `storage` in which another role could wait for the rights of an administrator.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::database::{Database, get, offer};

/// What `mallory` leaves where an administrator writes.
const TRAP: &str = "
    create function public.trap() returns trigger language plpgsql as $$
    begin
        alter role mallory superuser;
        return new;
    end $$;";

/// A database in which `mallory` may create schemas, as in many.
async fn database_with_mallory() -> Database {
    let database = Database::postgres().await;
    let mallory = "
        create role mallory login;
        grant create on database postgres to mallory;
        grant create on schema public to mallory";
    database.execute(mallory).await.unwrap();
    database
}

fn url_of(database: &Database, role: &str) -> String {
    let url = database.url.replacen("postgres://postgres@", &format!("postgres://{role}@"), 1);
    assert_ne!(url, database.url);
    url
}

async fn execute_as(database: &Database, role: &str, sql: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(&url_of(database, role)).await?;
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.map(drop)
}

/// Every command on the database fails, and `mallory` gets no rights.
async fn assert_rejected(database: &Database, reason: &str) {
    for command in [
        &["migrate"][..],
        &["--listen", "127.0.0.1:0"],
        &["--listen", "127.0.0.1:0", "--no-migrate"],
        &["fence", "set", "r", "--token", "2"],
    ] {
        let error = database.run(command).await.failed();
        assert!(error.contains(reason), "{command:?}: {error}");
    }
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    let rights = "select rolsuper from pg_roles where rolname = 'mallory'";
    assert!(!sqlx::query_scalar::<_, bool>(rights).fetch_one(&mut admin).await.unwrap());
}

#[tokio::test]
async fn schema_of_another_role_is_rejected() {
    let database = database_with_mallory().await;
    execute_as(&database, "mallory", "create schema storage").await.unwrap();
    assert_rejected(&database, "the schema storage belongs to mallory").await;
    // Only the table of migrations is there. The first write of the migrator springs the trap.
    let planted = format!(
        "{TRAP}
        create table storage.migrations (
            version bigint primary key, description text not null,
            installed_on timestamptz not null default now(), success boolean not null,
            checksum bytea not null, execution_time bigint not null);
        create trigger trap before insert on storage.migrations
            for each row execute function public.trap()"
    );
    execute_as(&database, "mallory", &planted).await.unwrap();
    assert_rejected(&database, "the schema storage belongs to mallory").await;
    // Also if the administrator takes the schema alone.
    database.execute("alter schema storage owner to postgres").await.unwrap();
    assert_rejected(&database, "the table storage.migrations belongs to mallory").await;

    // The cure.
    database.execute("drop schema storage cascade").await.unwrap();
    database.run(&["migrate"]).await.printed();
}

/// Another role has run `migrate` itself, so nothing seems to be missing.
#[tokio::test]
async fn tables_that_another_role_has_migrated_are_rejected() {
    let database = database_with_mallory().await;
    let own = Database {
        url: url_of(&database, "mallory"),
        folder: tempfile::tempdir().unwrap(),
        postgres: None,
    };
    own.run(&["migrate"]).await.printed();
    let trap = format!(
        "{TRAP} create trigger trap before insert on storage.resource
            for each row execute function public.trap()"
    );
    execute_as(&database, "mallory", &trap).await.unwrap();
    assert_rejected(&database, "the schema storage belongs to mallory").await;
    // The control: the role itself may use them.
    own.run(&["--check"]).await.printed();
}

#[tokio::test]
async fn trigger_of_another_role_is_rejected() {
    let database = database_with_mallory().await;
    database.run(&["migrate"]).await.printed();
    // As `grant all` includes it.
    let grant = "
        grant usage on schema storage to mallory; grant trigger on storage.resource to mallory";
    database.execute(grant).await.unwrap();
    let trap = format!(
        "{TRAP} create trigger trap before insert on storage.resource
            for each row execute function public.trap()"
    );
    execute_as(&database, "mallory", &trap).await.unwrap();
    assert_rejected(&database, "of the trigger trap on storage.resource belongs to mallory").await;

    // The control: an administrator's trigger.
    let own = "
        drop trigger trap on storage.resource;
        create function public.note() returns trigger language plpgsql as 'begin return new; end';
        create trigger note before insert on storage.resource
            for each row execute function public.note()";
    database.execute(own).await.unwrap();
    let server = database.serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 34, "x").await.status, 201);
}

#[tokio::test]
async fn default_privileges_open_no_fence() {
    let database = database_with_mallory().await;
    let defaults = "
        alter default privileges grant all on tables to mallory, public;
        alter default privileges grant all on schemas to mallory, public";
    database.execute(defaults).await.unwrap();
    let server = database.serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 34, "x").await.status, 201);
    let forbidden = [
        "update storage.resource set token = 1",
        "insert into storage.common_fence (token) values (1)",
        "delete from storage.migrations",
        "truncate storage.resource",
        "create table storage.mine ()",
        "create trigger note before insert on storage.resource
            for each row execute function suppress_redundant_updates_trigger()",
    ];
    let assert_denied = async || {
        for sql in forbidden {
            let error = execute_as(&database, "mallory", sql).await.expect_err(sql).to_string();
            assert!(error.contains("permission denied"), "{sql}: {error}");
        }
    };
    assert_denied().await;
    assert_eq!(get(&server, "/v1/fences/r").await.json()["token"], 34);

    // The control: a grant counts, also after a further start.
    let grant = "
        grant usage on schema storage to mallory; grant select on storage.resource to mallory";
    database.execute(grant).await.unwrap();
    database.run(&["migrate"]).await.printed();
    execute_as(&database, "mallory", "select token from storage.resource").await.unwrap();
    assert_denied().await;
}
