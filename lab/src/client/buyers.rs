//! Buyers of a sale: each takes an item if there is one left. What is left, and who has bought, is one
//! hash in Redis. The scenarios drive one buyer step by step, or let a crowd of them loose at once.

mod buyer;

use std::{process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use fence::ResourceName;
use lock_client::Locks;
use redis::AsyncConnectionConfig;
use serde_json::json;
use tokio::task::JoinSet;

use self::buyer::Buyer;
use super::steps::{self, print};
use testbed::open_files;

/// The field that has the number of items left; every other field is a buyer who bought one.
pub(crate) const LEFT: &str = "left";
/// A buyer waits for the lock for as long as the crowd may take.
const WAIT: Duration = Duration::from_secs(60);

/// What buyers are to do.
#[derive(Args, Clone, Debug)]
pub struct Buyers {
    /// What is sold, and the lock that guards it
    sale: ResourceName,
    #[arg(long, value_name = "URL")]
    redis: String,
    #[arg(long, value_name = "MILLISECONDS")]
    ttl_ms: u64,
    #[arg(long)]
    way: Way,
    /// How many they are, all at once; one alone goes step by step
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// The number of the first of them, by which they are told apart
    #[arg(long)]
    first: u64,
}

/// What keeps buyers from taking the same item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// A transaction of Redis, which is aborted and tried again if the hash has changed: WATCH, MULTI
    /// and EXEC.
    Watch,
    /// A lock.
    Lock,
    /// A lock, and its token, which is claimed before reading and checked again in writing.
    Fence,
}

/// What came of a buyer, or of a crowd.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    bought: u64,
    sold_out: u64,
    refused: u64,
    aborted: u64,
}

impl Buyers {
    /// Has them buy. A crowd prints one JSON line when all have been served; one buyer prints one for
    /// each step, and waits for a line on stdin before it goes on.
    ///
    /// # Errors
    /// If Redis or stdin fails.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        open_files::raise_limit();
        let locks = Locks::new(lock_client::redis::Redis::open(&self.redis)?);
        let client = redis::Client::open(self.redis.as_str())?;
        // A crowd takes longer to answer than the half second that is the default.
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(WAIT));
        let mut all = Vec::new();
        for number in self.first..self.first + self.count {
            let redis = client.get_multiplexed_async_connection_with_config(&patient).await?;
            let name = format!("buyer-{number}");
            all.push(Buyer { name, buyers: self.clone(), redis, locks: locks.clone() });
        }
        // At once: none of them begins before all have come.
        let mut crowd = JoinSet::new();
        for mut buyer in all {
            crowd.spawn(async move { buyer.buy().await });
        }
        let mut sum = Served::default();
        while let Some(served) = crowd.join_next().await {
            let Served { bought, sold_out, refused, aborted } = served??;
            sum.bought += bought;
            sum.sold_out += sold_out;
            sum.refused += refused;
            sum.aborted += aborted;
        }
        if self.count > 1 {
            let Served { bought, sold_out, refused, aborted } = sum;
            print(&json!({
                "event": "served", "buyers": self.count, "bought": bought, "sold_out": sold_out,
                "refused": refused, "aborted": aborted,
            }));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The hash, in the slot of its fence.
    fn key(&self) -> String {
        key(&self.sale)
    }
}

/// The key of a sale's hash.
pub(crate) fn key(sale: &ResourceName) -> String {
    format!("{{{sale}}}:stock")
}
