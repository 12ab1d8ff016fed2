//! Claims of a resource by a lock in the same database.

use std::time::Duration;

use fence::{Holder, Token};
use lock_client::{
    Order,
    backend::{Backend, Ownership},
    postgres::Postgres,
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Postgres as Database, Transaction};
use testbed::wait::until_async;

use super::{locked, locked_with, migrations};
use crate::{lock_service::ttl, names::name, sql::granted};

const SOON: Duration = Duration::from_secs(30);

async fn connect(server: &testbed::Postgres) -> PgConnection {
    PgConnection::connect(&server.url()).await.unwrap()
}

/// Claims the resource `account` by the lock `r`.
async fn claim(
    transaction: &mut Transaction<'_, Database>,
    owner: &Ownership,
) -> Result<(), sqlx::Error> {
    claim_by(transaction, "fenced_lock.claim", owner).await
}

async fn claim_by(
    transaction: &mut Transaction<'_, Database>,
    function: &str,
    owner: &Ownership,
) -> Result<(), sqlx::Error> {
    let claim = format!("select {function}('account', 'r', $1, $2)");
    let query = sqlx::query(AssertSqlSafe(claim));
    let query = query.bind(owner.grant.as_i64()).bind(owner.holder.as_str());
    query.execute(&mut **transaction).await.map(|_| ())
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().unwrap().code().unwrap().into_owned()
}

async fn expired(client: &Postgres) -> Result<(), anyhow::Error> {
    until_async(SOON, async || Ok(client.status(&name("r")).await?.held.is_none())).await
}

#[tokio::test]
async fn only_the_present_owner_claims() {
    let (server, client) = locked().await;
    let mut connection = connect(&server).await;
    connection.execute(AssertSqlSafe(migrations("fence"))).await.unwrap();
    let (_, owner) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    claim(&mut transaction, &owner).await.unwrap();
    // The claim does not keep the owner from renewing.
    client.renew(&name("r"), &owner, ttl(500)).await.unwrap().unwrap();
    transaction.commit().await.unwrap();
    expired(&client).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    assert_eq!(code(&claim(&mut transaction, &owner).await.unwrap_err()), "ZL001");
    transaction.rollback().await.unwrap();
    // The next owner has not claimed yet. The fence alone would accept the first one.
    let (_, next) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    assert_eq!(code(&claim(&mut transaction, &owner).await.unwrap_err()), "ZL001");
    transaction.rollback().await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    claim(&mut transaction, &next).await.unwrap();
    transaction.commit().await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    assert_eq!(code(&claim(&mut transaction, &owner).await.unwrap_err()), "ZF001");
    transaction.rollback().await.unwrap();
    // A snapshot from before the takeover would show the old owner.
    let mut transaction =
        connection.begin_with("begin isolation level repeatable read").await.unwrap();
    assert_eq!(code(&claim(&mut transaction, &next).await.unwrap_err()), "0A000");
}

/// A resource is written with the token that it was claimed with, also after a reissue.
#[tokio::test]
async fn older_token_of_the_ownership_claims_after_a_reissue() {
    let (server, client) = locked().await;
    let mut connection = connect(&server).await;
    connection.execute(AssertSqlSafe(migrations("fence"))).await.unwrap();
    let (token, owner) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let above = Token::new(token.as_u64() + 10).unwrap();
    let reissued = client.reissue(&name("r"), &owner, above).await.unwrap().unwrap();
    let mut claim_with = async |token: u64, holder: &Holder| {
        let owner = Ownership { holder: holder.clone(), grant: Token::new(token).unwrap() };
        let mut transaction = connection.begin().await.unwrap();
        let claimed = claim(&mut transaction, &owner).await;
        match &claimed {
            Ok(()) => transaction.commit().await.unwrap(),
            Err(_) => transaction.rollback().await.unwrap(),
        }
        claimed.map_err(|error| code(&error))
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

/// A claim waits for a transaction of a client that is paused. Meanwhile the lock goes to another
/// client. Returns whether the claim is accepted afterwards, though its lock is lost.
async fn claims_a_lost_lock(function: &str, changed: impl Fn(&str) -> String) -> bool {
    let (server, client) = locked_with(&[], changed).await;
    let (mut paused, mut waiting) = (connect(&server).await, connect(&server).await);
    paused.execute(AssertSqlSafe(migrations("fence"))).await.unwrap();
    let (_, first) = granted(&client, "r", &Holder::random(), 3_000).await.unwrap();
    // 1. Two transactions of the first owner: one has claimed and is paused, the other one waits.
    let mut paused = paused.begin().await.unwrap();
    claim(&mut paused, &first).await.unwrap();
    let mut waiting = waiting.begin().await.unwrap();
    let mut claiming = Box::pin(claim_by(&mut waiting, function, &first));
    let observed = until_async(SOON, async || {
        let mut observer = connect(&server).await;
        let query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
        Ok(sqlx::query_scalar::<_, i64>(query).fetch_one(&mut observer).await? == 1)
    });
    tokio::select! {
        claimed = &mut claiming => panic!("it does not wait: {claimed:?}"),
        observed = observed => observed.unwrap(),
    }
    // 2. The lock goes to another client.
    expired(&client).await.unwrap();
    let second = Holder::random();
    granted(&client, "r", &second, 600_000).await.unwrap();
    // 3. The paused transaction ends.
    paused.rollback().await.unwrap();
    let claimed = claiming.await;
    assert!(claimed.is_ok() || code(claimed.as_ref().unwrap_err()) == "ZL001", "{claimed:?}");
    let busy = client.try_acquire(&name("r"), &Holder::random(), ttl(10), Order::Unordered).await;
    busy.unwrap();
    claimed.is_ok()
}

#[tokio::test]
async fn lock_is_checked_after_the_claim() {
    assert!(!claims_a_lost_lock("fenced_lock.claim", str::to_owned).await);
    // The other order.
    let other_order = "
        create function fenced_lock.check_and_claim(
            resource text, name text, token bigint, holder text)
        returns void language plpgsql as $$
        begin
            if not fenced_lock.is_held(name, token, holder) then
                raise exception using errcode = 'ZL001', message = 'lost';
            end if;
            perform fence.claim(resource, token, holder);
        end
        $$;";
    let added = |sql: &str| format!("{sql}{other_order}");
    assert!(claims_a_lost_lock("fenced_lock.check_and_claim", added).await);
}
