//! Claims of a fence by a lock, in one database.

use std::{path::Path, time::Duration};

use fence::{Holder, Token};
use lock_client::{
    backend::{Backend, Ownership},
    mariadb::{MariaDb, install},
};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use testbed::wait::until_async;

use super::{connect, locked, until_a_transaction_waits};
use crate::{lock_service::ttl, names::name, sql::granted};

const READ_COMMITTED: &str = "set session transaction isolation level read committed";

async fn add_fence(server: &testbed::MariaDb) {
    connect(server).await.execute("create database fence").await.unwrap();
    let url = server.url().replace("/test?", "/fence?");
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/mariadb/fence");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        connection.execute(AssertSqlSafe(text)).await.unwrap();
    }
}

async fn claim(
    transaction: &mut MySqlConnection,
    procedure: &str,
    owner: &Ownership,
) -> Result<(), String> {
    let claim =
        format!("call {procedure}('account', 'r', {}, '{}')", owner.grant, owner.holder.as_str());
    let claimed = sqlx::raw_sql(AssertSqlSafe(claim)).execute(transaction).await;
    let code = |error: sqlx::Error| error.as_database_error().unwrap().code().unwrap().into_owned();
    claimed.map(|_| ()).map_err(code)
}

/// A claim waits for a transaction of a client that is paused. Meanwhile the lock goes to another
/// client. Returns the outcome of the claim, whose lock is lost.
async fn claim_of_a_lost_lock(procedure: &str) -> Result<(), String> {
    let (server, client) = locked().await;
    add_fence(&server).await;
    let (mut paused, mut waiting) = (connect(&server).await, connect(&server).await);
    let mut observer = connect(&server).await;
    let other_order = "create procedure check_and_claim(
            in_resource varchar(512), in_name varbinary(512), in_token bigint,
            in_holder varbinary(128))
        begin
            declare held boolean default false;
            select true into held from fenced_lock
            where name = in_name and token = in_token and holder = in_holder
                and expires_at_ms > floor(unix_timestamp(sysdate(6)) * 1000);
            if not held then
                signal sqlstate 'ZL001';
            end if;
            call fence.claim(in_resource, in_token, in_holder);
        end";
    observer.execute(sqlx::raw_sql(other_order)).await.unwrap();
    let (_, first) = granted(&client, "r", &Holder::random(), 3_000).await.unwrap();
    // 1. Two transactions of the first owner: one has claimed and is paused, the other one waits.
    let mut paused = paused.begin().await.unwrap();
    assert_eq!(claim(&mut paused, "fenced_lock_claim", &first).await.unwrap_err(), "0A000");
    paused.rollback().await.unwrap();
    let mut paused = connect(&server).await;
    for connection in [&mut paused, &mut waiting] {
        connection.execute(READ_COMMITTED).await.unwrap();
    }
    let mut paused = paused.begin().await.unwrap();
    claim(&mut paused, "fenced_lock_claim", &first).await.unwrap();
    client.renew(&name("r"), &first, ttl(3_000)).await.unwrap().unwrap();
    let (procedure, owner) = (procedure.to_owned(), first.clone());
    let claiming = tokio::spawn(async move {
        let mut waiting = waiting.begin().await.unwrap();
        claim(&mut waiting, &procedure, &owner).await
    });
    until_a_transaction_waits(&server).await.unwrap();
    // 2. The lock goes to another client.
    let free = async || Ok(client.status(&name("r")).await?.held.is_none());
    until_async(Duration::from_secs(30), free).await.unwrap();
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    // 3. The paused transaction ends.
    paused.rollback().await.unwrap();
    claiming.await.unwrap()
}

#[tokio::test]
async fn lock_is_checked_after_the_claim() {
    assert_eq!(claim_of_a_lost_lock("fenced_lock_claim").await.unwrap_err(), "ZL001");
    // The other order claims with a lost lock.
    claim_of_a_lost_lock("check_and_claim").await.unwrap();
}

/// A resource is written with the token that it was claimed with, also after a reissue.
#[tokio::test]
async fn older_token_of_the_ownership_claims_after_a_reissue() {
    let (server, client) = locked().await;
    add_fence(&server).await;
    let (token, owner) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let above = Token::new(token.as_u64() + 10).unwrap();
    let reissued = client.reissue(&name("r"), &owner, above).await.unwrap().unwrap();
    let claim_with = async |token: u64, holder: &Holder| {
        let owner = Ownership { holder: holder.clone(), grant: Token::new(token).unwrap() };
        let mut connection = connect(&server).await;
        connection.execute(READ_COMMITTED).await.unwrap();
        let mut transaction = connection.begin().await.unwrap();
        let claimed = claim(&mut transaction, "fenced_lock_claim", &owner).await;
        match &claimed {
            Ok(()) => transaction.commit().await.unwrap(),
            Err(_) => transaction.rollback().await.unwrap(),
        }
        claimed
    };
    // Tokens that are not of this ownership, which the fence would accept.
    for other in [token.as_u64() - 1, reissued.as_u64() + 1] {
        assert_eq!(claim_with(other, &owner.holder).await.unwrap_err(), "ZL001");
    }
    assert_eq!(claim_with(token.as_u64(), &Holder::random()).await.unwrap_err(), "ZL001");
    claim_with(token.as_u64(), &owner.holder).await.unwrap();
    claim_with(reissued.as_u64(), &owner.holder).await.unwrap();
    assert_eq!(claim_with(token.as_u64(), &owner.holder).await.unwrap_err(), "ZF001");
}

/// A session that fakes the lock, one whose clock shows an hour twice, and one that reads an older
/// state: no claim passes with a lost lock. The rights are the caller's own.
#[tokio::test]
async fn session_does_not_change_what_a_claim_checks() {
    let (server, client) = locked().await;
    add_fence(&server).await;
    let mut administrator = connect(&server).await;
    // The second of two equal hours has begun 20 minutes ago.
    let overlap = "insert into mysql.time_zone (use_leap_seconds) values ('N');
        set @zone = last_insert_id();
        insert into mysql.time_zone_name values ('Test/Overlap', @zone);
        insert into mysql.time_zone_transition_type values
            (@zone, 0, 3600, 1, 'A'), (@zone, 1, 0, 0, 'B');
        insert into mysql.time_zone_transition values
            (@zone, unix_timestamp() - 100000000, 0), (@zone, unix_timestamp() - 1200, 1)";
    administrator.execute(sqlx::raw_sql(overlap)).await.unwrap();
    let (_, owner) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut sessions = Vec::new();
    for preparation in [
        "set time_zone = 'Test/Overlap'".to_owned(),
        format!(
            "create temporary table fenced_lock as select name, token, granted, holder,
            cast(99999999999999 as int) as expires_at_ms, since_ms, label
            from fenced_lock where token = {}",
            owner.grant
        ),
        "set transaction isolation level repeatable read".to_owned(),
    ] {
        let mut session = connect(&server).await;
        session.execute(READ_COMMITTED).await.unwrap();
        session.execute(AssertSqlSafe(preparation)).await.unwrap();
        session.execute(sqlx::raw_sql("begin")).await.unwrap();
        session.execute("select name from test.fenced_lock").await.unwrap();
        sessions.push(session);
    }
    client.renew(&name("r"), &owner, ttl(500)).await.unwrap().unwrap();
    let free = async || Ok(client.status(&name("r")).await?.held.is_none());
    until_async(Duration::from_secs(30), free).await.unwrap();
    for (number, mut session) in sessions.into_iter().enumerate() {
        let claimed = claim(&mut session, "fenced_lock_claim", &owner).await;
        assert_eq!(claimed.unwrap_err(), "ZL001", "session {number}");
    }
    // A role that may check the lock and may not claim the resource.
    administrator.execute("create user locker@localhost").await.unwrap();
    let (_, owner) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut locker = MySqlConnection::connect(&server.url().replace("//root@", "//locker@")).await;
    let locker = locker.as_mut().unwrap();
    locker.execute(READ_COMMITTED).await.unwrap();
    for (procedure, is_enough) in [
        ("test.fenced_lock_claim", false),
        ("test.fenced_lock_check", false),
        ("fence.claim", true),
    ] {
        let grant = format!("grant execute on procedure {procedure} to locker@localhost");
        administrator.execute(AssertSqlSafe(grant)).await.unwrap();
        let mut transaction = locker.begin().await.unwrap();
        let claimed = claim(&mut transaction, "fenced_lock_claim", &owner).await;
        assert_eq!(claimed.is_ok(), is_enough, "{procedure}: {claimed:?}");
        transaction.rollback().await.unwrap();
    }
}

/// MariaDB does not show the level of one transaction. A claim at REPEATABLE READ, with a snapshot from
/// before it, is right all the same. But it keeps the lock from being renewed.
#[tokio::test]
async fn snapshot_of_one_transaction_lets_no_wrong_claim_pass() {
    let (server, client) = locked().await;
    add_fence(&server).await;
    let begin = async |with_level: &'static str| {
        let mut session = connect(&server).await;
        session.execute(READ_COMMITTED).await.unwrap();
        session.execute(with_level).await.unwrap();
        let begin = sqlx::raw_sql("start transaction with consistent snapshot");
        session.execute(begin).await.unwrap();
        session
    };
    let snapshot = "set transaction isolation level repeatable read";
    let owner = async || granted(&client, "r", &Holder::random(), 600_000).await.unwrap().1;
    let lose = async |owner: &Ownership| {
        client.release(&name("r"), &owner.holder, None).await.unwrap();
    };
    // 1. The lock was lost after the snapshot.
    let first = owner().await;
    let mut session = begin(snapshot).await;
    lose(&first).await;
    let claimed = claim(&mut session, "fenced_lock_claim", &first).await;
    assert_eq!(claimed.unwrap_err(), "ZL001");
    drop(session);
    // 2. Another owner has claimed and written after the snapshot, which does not show that.
    let mut session = begin(snapshot).await;
    let second = owner().await;
    let mut latest = begin(READ_COMMITTED).await;
    claim(&mut latest, "fenced_lock_claim", &second).await.unwrap();
    latest.execute(sqlx::raw_sql("commit")).await.unwrap();
    lose(&second).await;
    let third = owner().await;
    let claimed = claim(&mut session, "fenced_lock_claim", &third).await;
    assert_eq!(claimed.unwrap_err(), "40001");
    drop(session);
    // 3. The present owner claims. Its lock can't be renewed until the transaction ends.
    for (level, is_renewed) in [(READ_COMMITTED, true), (snapshot, false)] {
        let mut session = begin(level).await;
        claim(&mut session, "fenced_lock_claim", &third).await.unwrap();
        let renewed = client.renew(&name("r"), &third, ttl(600_000)).await;
        assert_eq!(renewed.is_ok(), is_renewed, "{level}: {renewed:?}");
        session.execute(sqlx::raw_sql("rollback")).await.unwrap();
        let renewed = client.renew(&name("r"), &third, ttl(600_000)).await;
        assert_eq!(renewed.unwrap(), Some(third.grant), "{level}");
    }
}

/// A session that may make temporary tables in this database fakes the lock. Without the right, it
/// can't.
#[tokio::test]
async fn right_to_make_temporary_tables_fakes_a_claim() {
    let server = testbed::MariaDb::start().await.unwrap();
    add_fence(&server).await;
    // Everybody has all rights on the database `test`.
    let mut administrator = connect(&server).await;
    administrator.execute("create user locker@localhost; create database locks").await.unwrap();
    let url = server.url().replace("/test?", "/locks?");
    let mut owner = MySqlConnection::connect(&url).await.unwrap();
    install(&mut owner).await.unwrap();
    for procedure in ["locks.fenced_lock_claim", "locks.fenced_lock_check", "fence.claim"] {
        let grant = format!("grant execute on procedure {procedure} to locker@localhost");
        owner.execute(AssertSqlSafe(grant)).await.unwrap();
    }
    let lost = Ownership { holder: Holder::random(), grant: Token::new(33).unwrap() };
    let fake = format!(
        "create temporary table fenced_lock_owners as select cast('r' as binary) as name,
        33 as granted, 33 as token, '{}' as holder, 99999999999999 as expires_at_ms",
        lost.holder.as_str()
    );
    let fakes = async || {
        let url = url.replace("//root@", "//locker@");
        let mut session = MySqlConnection::connect(&url).await.unwrap();
        session.execute(READ_COMMITTED).await.unwrap();
        let faked = session.execute(AssertSqlSafe(fake.clone())).await.is_ok();
        let mut transaction = session.begin().await.unwrap();
        let claimed = claim(&mut transaction, "fenced_lock_claim", &lost).await;
        transaction.rollback().await.unwrap();
        (faked, claimed)
    };
    assert_eq!(fakes().await, (false, Err("ZL001".to_owned())));
    owner.execute("grant create temporary tables on locks.* to locker@localhost").await.unwrap();
    assert_eq!(fakes().await, (true, Ok(())));
}

#[test]
fn url_of_something_else_is_rejected() {
    for url in ["postgres://localhost", "mariadb://localhost:port/"] {
        MariaDb::open(url).unwrap_err();
    }
    let client = MariaDb::open("mariadb://me:secret@db:3307/locks").unwrap();
    assert_eq!(client.address(), "mariadb://db:3307/locks");
}
