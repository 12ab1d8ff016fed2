//! A web session that several servers keep in one Redis, and two requests of one user at once.
//!
//! ```sh
//! export FENCED_LOCKS=redis://127.0.0.1
//! cargo run -p lock-client --example redis_session
//! ```
//!
//! A session is read as a whole, changed, and written back as a whole, under a lock. Each request is a
//! process of its own: this program, started again. The first one is paused by SIGSTOP, for longer than
//! its lease lasts. Without the fence, it then overwrites the newer session, and the cart loses an item.
//! With the fence, its write is rejected, and the request tries again.

use std::{env, io, process::Command, time::Duration};

use anyhow::{Context, ensure};
use fence::{ClaimError, Fence, ResourceName, redis::Fenced};
use lock_client::{Locks, Ttl, redis::Redis};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use testbed::process::Process;

/// The braces put the session into the slot of its fence, on a Redis Cluster.
const SESSION: &str = "{session-of-alice}:cart";
/// How long the second request waits for the lock of the paused one.
const TTL: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [writes, item] = &arguments[..] {
        let writes = if writes == "fenced" { Writes::Fenced } else { Writes::Plain };
        return Server::connect(writes).await?.add(item).await;
    }
    for writes in [Writes::Plain, Writes::Fenced] {
        println!("{}", writes.heading());
        let server = Server::connect(writes).await?;
        server.log_in().await?;
        two_requests_at_once(writes).await?;
        println!("  the cart holds: {}\n", server.read().await?);
    }
    Ok(())
}

/// The user clicks twice. The first request is paused after it has read the session, until the second
/// one is done. A garbage collector, or a virtual machine that is moved, pauses a server like this.
async fn two_requests_at_once(writes: Writes) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let request = |item| {
        let mut command = Command::new(env::current_exe()?);
        command.args([writes.argument(), item]);
        Process::spawn(item, &command, folder.path())
    };
    let mut first = request("a book")?;
    println!("{}", first.line(SOON).await?);
    first.pause().await?;
    println!("  request 1 is paused (SIGSTOP) for longer than its lease lasts");
    first.write_line("continue")?;
    let mut second = request("a lamp")?;
    second.write_line("continue")?;
    finish(second).await?;
    first.resume()?;
    println!("  request 1 continues");
    finish(first).await
}

/// Prints what is left of a request's output.
async fn finish(mut request: Process) -> anyhow::Result<()> {
    while let Ok(line) = request.line(SOON).await {
        println!("{line}");
    }
    let exit = request.exit(SOON).await?;
    ensure!(exit.success(), request.account("failed"));
    Ok(())
}

/// Whether Redis checks the tokens of writes.
#[derive(Clone, Copy)]
enum Writes {
    Plain,
    Fenced,
}

impl Writes {
    fn argument(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fenced => "fenced",
        }
    }

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
    async fn connect(writes: Writes) -> anyhow::Result<Self> {
        let url = env::var("FENCED_LOCKS")?;
        Ok(Self {
            locks: Locks::new(Redis::open(&url)?),
            redis: testbed::redis::connect(url).await.context("no answer from Redis")?,
            session: "session-of-alice".parse()?,
            writes,
        })
    }

    async fn log_in(&self) -> anyhow::Result<()> {
        // A fence outlives its session. The empty cart is a fenced write like any other.
        let lease = self.locks.acquire(&self.session, Ttl::new(TTL)?).await?;
        self.write("nothing", &lease.fence()?).await?;
        lease.release().await?;
        Ok(())
    }

    /// Handles a request: adds an item to the cart. Between reading and writing, it waits for a line.
    async fn add(&self, item: &str) -> anyhow::Result<()> {
        let mut is_first_try = true;
        loop {
            // 1. Acquire the lock. The pause of a whole process also stops the renewal of its leases.
            let lease = self.locks.acquire(&self.session, Ttl::new(TTL)?).await?;
            let offered = lease.fence()?;
            // 2. Claim before reading: from here on, Redis rejects older tokens.
            self.claim(&offered).await?;
            let cart = self.read().await?;
            println!("  {item}: token {}, reads: {cart}", offered.token);
            if is_first_try {
                tokio::task::spawn_blocking(|| io::stdin().read_line(&mut String::new())).await??;
                is_first_try = false;
            }
            // 3. Write the session back. A rejection means that another request was let in: what was
            //    read is void, so start again.
            let cart = with(&cart, item);
            match self.write(&cart, &offered).await {
                Ok(()) => println!("  {item}: token {}, writes: {cart}", offered.token),
                Err(ClaimError::Rejected { rejection, .. }) => {
                    println!("  {item}: rejected, {rejection}; trying again");
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
