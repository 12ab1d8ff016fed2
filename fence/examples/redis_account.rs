//! An account in Redis whose balance a paused client can't corrupt.
//!
//!     cargo run --package fence --example redis_account --features redis
//!
//! It starts a private server. To use your own, open the client with its URL.

use fence::{ClaimError, Fence, Holder, ResourceName, Token, redis::Fenced};
use redis::AsyncCommands;
use testbed::Redis;

/// On a Cluster, the braces put the value into the slot of the fence.
const BALANCE: &str = "{alice}:balance";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Redis::start().await?;
    let client = redis::Client::open(server.url())?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    let () = redis.set(BALANCE, 100).await?;

    // Tokens and holders come from a lock. Here they are made up.
    let alice: ResourceName = "alice".parse()?;
    let offered = |token| Fence { token, holder: Holder::random() };
    let client_1 = Fenced::new(&alice, &offered(Token::new(33)?));
    let client_2 = Fenced::new(&alice, &offered(Token::new(34)?));

    // After a claim, older tokens are rejected.
    client_1.claim(&mut redis).await?;
    let balance: i64 = redis.get(BALANCE).await?;
    println!("client 1, token 33, reads {balance}, and is paused past its lease");

    client_2.claim(&mut redis).await?;
    let seen: i64 = redis.get(BALANCE).await?;
    client_2.set(&mut redis, BALANCE, seen - 30).await?;
    println!("client 2, token 34, reads {seen} and writes {}", seen - 30);

    match client_1.set(&mut redis, BALANCE, balance - 50).await {
        Ok(()) => println!("client 1 wakes up and overwrites that with {}", balance - 50),
        Err(ClaimError::Rejected { rejection, .. }) => {
            println!("client 1 wakes up and is rejected: {rejection}")
        }
        Err(error) => return Err(error.into()),
    }
    let balance: i64 = redis.get(BALANCE).await?;
    println!("the balance is {balance}");
    Ok(())
}
