//! A web session that several servers keep in one Redis, and two requests of one user at once.
//!
//! ```sh
//! export FENCED_LOCKS=redis://127.0.0.1
//! cargo run -p lock-client --example redis_session
//! ```
//!
//! A session is read as a whole, changed, and written back as a whole, under a lock. The first request
//! is paused for longer than its lease lasts. Without the fence, it then overwrites the newer session,
//! and the cart loses an item. With the fence, its write is rejected, and the request tries again.

use std::{env, error::Error, time::Duration};

use fence::{ClaimError, Fence, ResourceName, redis::Fenced};
use lock_client::{Locks, Terms, Ttl, redis::Redis};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use tokio::sync::oneshot;

/// The braces put the session into the slot of its fence, on a Redis Cluster.
const SESSION: &str = "{session-of-alice}:cart";
/// How long the second request waits for the lock of the paused one.
const TTL: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("FENCED_LOCKS")?;
    for writes in [Writes::Plain, Writes::Fenced] {
        println!("{}", writes.heading());
        let server = Server::connect(&url, writes).await?;
        server.log_in().await?;
        two_requests_at_once(&server, &Server::connect(&url, writes).await?).await?;
        println!("  the cart holds: {}\n", server.read().await?);
    }
    Ok(())
}

/// The user clicks twice. The first request is paused after it has read the session, until the second
/// one is done. A garbage collector, or a virtual machine that is moved, pauses a server like this.
async fn two_requests_at_once(one: &Server, other: &Server) -> Result<(), Box<dyn Error>> {
    let (has_read, first_has_read) = oneshot::channel();
    let (resume, resumed) = oneshot::channel();
    let first = one.add("a book", async {
        println!("  request 1 is paused for longer than its lease lasts");
        let _ = has_read.send(());
        let _ = resumed.await;
        println!("  request 1 continues");
    });
    let second = async {
        first_has_read.await?;
        other.add("a lamp", async {}).await?;
        let _ = resume.send(());
        Ok(())
    };
    tokio::try_join!(first, second)?;
    Ok(())
}

/// Whether Redis checks the tokens of writes.
#[derive(Clone, Copy)]
enum Writes {
    Plain,
    Fenced,
}

impl Writes {
    fn heading(self) -> &'static str {
        match self {
            Self::Plain => "Without the fence:",
            Self::Fenced => "With the fence:",
        }
    }
}

/// A web server.
struct Server {
    locks: Locks,
    redis: MultiplexedConnection,
    session: ResourceName,
    writes: Writes,
}

impl Server {
    async fn connect(url: &str, writes: Writes) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            locks: Locks::new(Redis::open(url)?),
            redis: redis::Client::open(url)?.get_multiplexed_async_connection().await?,
            session: "session-of-alice".parse()?,
            writes,
        })
    }

    async fn log_in(&self) -> Result<(), Box<dyn Error>> {
        // A fence outlives its session. The empty cart is a fenced write like any other.
        let lease = self.locks.acquire(&self.session, Ttl::new(TTL)?).await?;
        self.write("nothing", &lease.fence()?).await?;
        lease.release().await?;
        Ok(())
    }

    /// Handles a request: adds an item to the cart. The pause comes between reading and writing.
    async fn add(&self, item: &str, pause: impl Future<Output = ()>) -> Result<(), Box<dyn Error>> {
        let mut pause = Some(pause);
        loop {
            // 1. Acquire the lock. The pause of a whole process also stops the renewal of its leases;
            //    here it is switched off.
            let terms = Terms::new(Ttl::new(TTL)?).without_renewal();
            let lease = self.locks.acquire(&self.session, terms).await?;
            let offered = lease.fence()?;
            // 2. Claim before reading: from here on, Redis rejects older tokens.
            self.claim(&offered).await?;
            let cart = self.read().await?;
            println!("  {item}: token {}, reads: {cart}", offered.token);
            if let Some(pause) = pause.take() {
                pause.await;
            }
            // 3. Write the session back. A rejection means that another request was let in: what was
            //    read is void, so start again.
            let cart = with(&cart, item);
            match self.write(&cart, &offered).await {
                Ok(()) => println!("  {item}: token {}, writes: {cart}", offered.token),
                Err(ClaimError::Refused { refusal, .. }) => {
                    println!("  {item}: rejected, {refusal}; trying again");
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            // 4. Release. An expired lock needs none.
            let _ = lease.release().await;
            return Ok(());
        }
    }

    async fn read(&self) -> Result<String, redis::RedisError> {
        self.redis.clone().get(SESSION).await
    }

    async fn claim(&self, offered: &Fence) -> Result<(), ClaimError<redis::RedisError>> {
        match self.writes {
            Writes::Plain => Ok(()),
            Writes::Fenced => self.fenced(offered).claim(&mut self.redis.clone()).await,
        }
    }

    async fn write(
        &self,
        cart: &str,
        offered: &Fence,
    ) -> Result<(), ClaimError<redis::RedisError>> {
        let mut redis = self.redis.clone();
        match self.writes {
            Writes::Plain => redis
                .set(SESSION, cart)
                .await
                .map_err(|source| ClaimError::Database { resource: self.session.clone(), source }),
            Writes::Fenced => self.fenced(offered).set(&mut redis, SESSION, cart).await,
        }
    }

    fn fenced(&self, offered: &Fence) -> Fenced {
        Fenced::new(&self.session, offered)
    }
}

fn with(cart: &str, item: &str) -> String {
    if cart == "nothing" { item.to_owned() } else { format!("{cart}, {item}") }
}
