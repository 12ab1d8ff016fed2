//! An account in PostgreSQL whose balance a paused client can't corrupt.
//!
//!     cargo run --package fence --example postgres_account --features postgres
//!
//! It starts a private server. To use your own, connect the pool to its URL.

use fence::{ClaimError, Fence, Holder, ResourceName, Token, postgres};
use sqlx::{Executor, PgPool};
use testbed::Postgres;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Postgres::start().await?;
    let pool = PgPool::connect(&server.url()).await?;
    postgres::install(&pool).await?;
    pool.execute("create table accounts (account_id text primary key, balance bigint not null)")
        .await?;
    pool.execute("insert into accounts values ('alice', 100)").await?;
    // From here on the table rejects writes without a valid token, even from a program that forgot
    // to claim.
    pool.execute("select fence.protect('accounts', 'account_id')").await?;

    let alice: ResourceName = "alice".parse()?;
    // Tokens and holders come from a lock. Here they are made up.
    let client_1 = Fence { token: Token::new(33)?, holder: Holder::random() };
    let client_2 = Fence { token: Token::new(34)?, holder: Holder::random() };

    let balance = fenced_read(&pool, &alice, &client_1).await?;
    println!("client 1, token 33, reads {balance}, and is paused past its lease");

    let seen = fenced_read(&pool, &alice, &client_2).await?;
    fenced_write(&pool, &alice, &client_2, seen - 30).await?;
    println!("client 2, token 34, reads {seen} and writes {}", seen - 30);

    match fenced_write(&pool, &alice, &client_1, balance - 50).await {
        Ok(()) => println!("client 1 wakes up and overwrites that with {}", balance - 50),
        Err(error) => match error.downcast()? {
            ClaimError::<sqlx::Error>::Rejected { rejection, .. } => {
                println!("client 1 wakes up and is rejected: {rejection}")
            }
            error => return Err(error.into()),
        },
    }
    let balance: i64 = sqlx::query_scalar("select balance from accounts").fetch_one(&pool).await?;
    println!("the balance is {balance}");
    Ok(())
}

/// Claims, and then reads, in one transaction. From then on older tokens are rejected.
async fn fenced_read(
    pool: &PgPool,
    account: &ResourceName,
    offered: &Fence,
) -> anyhow::Result<i64> {
    let mut transaction = pool.begin().await?;
    postgres::claim(&mut transaction, account, offered).await?;
    let balance = sqlx::query_scalar("select balance from accounts where account_id = $1")
        .bind(account.as_str())
        .fetch_one(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(balance)
}

/// Claims again, and writes, in one transaction.
///
/// A transaction that reads and writes claims once. Two transactions suit work that takes long
/// between reading and writing.
async fn fenced_write(
    pool: &PgPool,
    account: &ResourceName,
    offered: &Fence,
    balance: i64,
) -> anyhow::Result<()> {
    let mut transaction = pool.begin().await?;
    postgres::claim(&mut transaction, account, offered).await?;
    sqlx::query("update accounts set balance = $2 where account_id = $1")
        .bind(account.as_str())
        .bind(balance)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}
