//! Nobody but the installer owns, or creates, anything in the schema `fence`.

use fence::postgres;
use testbed::Postgres;

use super::{
    MALFORMED, NO_PRIVILEGE, accounts, attempt, files, first_version, psql, roles::WRITER, session,
    session_of,
};

/// A better match for `refuse_malformed(resource, null)` than the fence's own. It fails with EV001,
/// and with the name of the role whose rights it has.
const BETTER_MATCH: &str = "
    create function fence.refuse_malformed(text, text) returns void language plpgsql
    as $$ begin raise sqlstate 'EV001' using message = current_user; end $$";
const NULL_RESOURCE: &str = "select fence.require(null)";

/// The negative control: the first version calls it.
#[tokio::test]
async fn first_version_runs_what_others_create_in_its_schema() {
    let server = Postgres::start().await.unwrap();
    let mut owner = session(&server).await;
    let setup = "create role writer login;
        alter default privileges grant all on schemas to writer";
    attempt(&mut owner, setup).await.unwrap();
    psql(&server.url(), &first_version()).unwrap();
    let mut writer = session_of(&server, "writer").await;
    attempt(&mut writer, BETTER_MATCH).await.unwrap();
    assert_eq!(attempt(&mut writer, NULL_RESOURCE).await.unwrap_err(), "EV001");

    // The upgrade fails beside it.
    let rejected = psql(&server.url(), &files()).unwrap_err();
    assert!(rejected.contains("fence.refuse_malformed(text,text) belongs to writer"), "{rejected}");
    attempt(&mut owner, "drop function fence.refuse_malformed(text, text)").await.unwrap();
    psql(&server.url(), &files()).unwrap();
    assert_eq!(attempt(&mut writer, BETTER_MATCH).await.unwrap_err(), NO_PRIVILEGE);
}

#[tokio::test]
async fn what_others_create_in_the_schema_is_not_called() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, &format!("{WRITER} grant all on schema fence to writer")).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    let fails = "language plpgsql as $$ begin raise sqlstate 'EV001'; end $$";
    let better = format!(
        "{BETTER_MATCH};
         create function fence.accepts(int, text, bigint, text) returns boolean {fails};
         create function fence.protect(regclass, text, varchar) returns void {fails};
         create function fence.require(varchar) returns void {fails}"
    );
    attempt(&mut writer, &better).await.unwrap();
    // The negative control: a constant without a type does call it.
    let untyped = "select fence.refuse_malformed('any', null)";
    assert_eq!(attempt(&mut writer, untyped).await.unwrap_err(), "EV001");
    for malformed in [
        "select fence.require(null::text)",
        "select fence.verify(null)",
        "select fence.present(0)",
        "select fence.claim(null, 34)",
        "select fence.claim('alice', 0)",
    ] {
        assert_eq!(attempt(&mut writer, malformed).await.unwrap_err(), MALFORMED, "{malformed}");
    }
    let table = "create table notes (id text); select fence.protect('notes', 'id')";
    attempt(&mut owner, table).await.unwrap();
    // The next application takes the right away, and names what was created.
    let rejected = psql(&server.url(), &files()).unwrap_err();
    assert!(rejected.contains("belongs to writer"), "{rejected}");
}

#[tokio::test]
async fn schema_of_another_owner_is_rejected() {
    for schema in [
        "create schema fence authorization writer",
        "create schema fence; grant create on schema fence to writer;
         set role writer; create table fence.migrations (version bigint); reset role",
    ] {
        let server = Postgres::start().await.unwrap();
        let mut owner = session(&server).await;
        attempt(&mut owner, "create role writer login").await.unwrap();
        attempt(&mut owner, schema).await.unwrap();

        let rejected = psql(&server.url(), &files()).unwrap_err();
        assert!(rejected.contains("belongs to writer"), "{rejected}");
        let rejected = postgres::install(&mut owner).await.unwrap_err();
        assert!(rejected.to_string().contains("belongs to writer"), "{rejected}");
        // The role that owns it may install it, and everything then is its own.
        let own = "alter schema fence owner to writer; grant create on database postgres to writer";
        attempt(&mut owner, own).await.unwrap();
        attempt(&mut owner, "drop table if exists fence.migrations").await.unwrap();
        let mut writer = session_of(&server, "writer").await;
        postgres::install(&mut writer).await.unwrap();
        attempt(&mut writer, "select fence.claim('alice', 34)").await.unwrap();
    }
}
