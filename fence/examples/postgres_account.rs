//! An account in PostgreSQL whose balance a paused client can't corrupt.
//!
//!     cargo run --example postgres_account
//!
//! It runs on a private server; with your own, connect the pool to its URL instead.

use fence::{ClaimError, Holder, ResourceName, Token, postgres};
use sqlx::{Executor, PgPool};
use testbed::Postgres;

/// What a lock gives to a client: here made up, as locks are another crate's business.
struct Lease {
    token: Token,
    holder: Holder,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Postgres::start().await?;
    let pool = PgPool::connect(&server.url()).await?;
    postgres::install(&pool).await?;
    pool.execute("create table accounts (account_id text primary key, balance bigint not null)")
        .await?;
    pool.execute("insert into accounts values ('alice', 100)").await?;
    // From here on, nobody writes to it without a valid token, whoever forgot the check.
    pool.execute("select fence.protect('accounts', 'account_id')").await?;

    let alice: ResourceName = "alice".parse()?;
    let client_1 = Lease { token: Token::new(33)?, holder: Holder::random() };
    let client_2 = Lease { token: Token::new(34)?, holder: Holder::random() };

    let balance = fenced_read(&pool, &alice, &client_1).await?;
    println!("client 1, token 33, reads {balance}, and is paused past its lease");

    let seen = fenced_read(&pool, &alice, &client_2).await?;
    fenced_write(&pool, &alice, &client_2, seen - 30).await?;
    println!("client 2, token 34, reads {seen} and writes {}", seen - 30);

    match fenced_write(&pool, &alice, &client_1, balance - 50).await {
        Ok(()) => println!("client 1 wakes up and overwrites that with {}", balance - 50),
        Err(ClaimError::Refused(refusal)) => {
            println!("client 1 wakes up and is refused: {refusal}")
        }
        Err(error) => return Err(error.into()),
    }
    let balance: i64 = sqlx::query_scalar("select balance from accounts").fetch_one(&pool).await?;
    println!("the balance is {balance}");
    Ok(())
}

/// Claims, and then reads, in one transaction: from here on, older tokens are refused.
async fn fenced_read(
    pool: &PgPool,
    account: &ResourceName,
    lease: &Lease,
) -> Result<i64, ClaimError<sqlx::Error>> {
    let mut transaction = pool.begin().await?;
    postgres::claim(&mut transaction, account, lease.token, &lease.holder).await?;
    let balance = sqlx::query_scalar("select balance from accounts where account_id = $1")
        .bind(account.as_str())
        .fetch_one(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(balance)
}

/// Claims again, and writes, in one transaction. One that reads and writes claims only once; this is
/// for the work that takes time in between.
async fn fenced_write(
    pool: &PgPool,
    account: &ResourceName,
    lease: &Lease,
    balance: i64,
) -> Result<(), ClaimError<sqlx::Error>> {
    let mut transaction = pool.begin().await?;
    postgres::claim(&mut transaction, account, lease.token, &lease.holder).await?;
    sqlx::query("update accounts set balance = $2 where account_id = $1")
        .bind(account.as_str())
        .bind(balance)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}
