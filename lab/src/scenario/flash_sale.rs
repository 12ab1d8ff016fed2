//! 1 000 buyers and 20 items. One buyer is paused between reading what is left and taking an item, and
//! half of the others have been served when it wakes up.

use std::{ops::Range, time::Duration};

use async_trait::async_trait;
use fence::ResourceName;
use serde_json::Map;

use super::{
    Scenario,
    stage::{
        Work,
        driver::Client,
        lock::{LONG_TTL, Lock},
    },
};
use crate::{
    client::buyers::{self, LEFT, Way},
    record::{Actor, Checks, Danger, Expected, Outcome, Recorder, World},
};
use testbed::{Databases, Redis};

const SALE: &str = "sale";
const ITEMS: u64 = 20;
const BUYERS: u64 = 1_000;
/// So many are many transactions that were aborted for 20 items.
const MANY: u64 = 10 * ITEMS;
/// Whom half of the others are.
const HALF: u64 = BUYERS / 2;
/// For how long client 1 gets the lock.
const TTL: Duration = Duration::from_secs(1);
const SERVED_WITHIN: Duration = Duration::from_secs(30);

const WORLDS: [World; 3] = [
    World {
        name: "lock",
        title: "A LOCK, without a fence: who has the lock reads what is left, and takes an item",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &[("sold", Expected::AtLeast(ITEMS + 1)), ("refused", Expected::Number(0))],
    },
    World {
        name: "lock-and-fence",
        title: "A LOCK AND ITS TOKEN: who has the lock claims, reads what is left, and takes an item \
                with the token",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &[
            ("sold", Expected::Number(ITEMS)),
            ("refused", Expected::Number(1)),
            ("transactions_aborted", Expected::Number(0)),
        ],
    },
    World {
        name: "watch-multi-exec",
        title: "WATCH, MULTI, EXEC: Redis aborts whoever has read what has changed since, to try again",
        danger: Danger::Averted,
        checks: Checks::Nothing,
        end: &[
            ("sold", Expected::Number(ITEMS)),
            ("transactions_aborted", Expected::AtLeast(MANY)),
        ],
    },
];

#[derive(Debug)]
pub(super) struct FlashSale;

#[async_trait(?Send)]
impl Scenario for FlashSale {
    fn name(&self) -> &'static str {
        "flash-sale"
    }

    fn claim(&self) -> &'static str {
        "Of 20 items, 1 000 buyers under a lock buy more than 20, if one of them is paused past its \
         lease; with the lock's tokens they buy 20; and by WATCH, MULTI and EXEC they buy 20 too, after \
         many transactions were aborted."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    fn lanes(&self) -> &'static [Actor] {
        &[Actor::Client1, Actor::Redis, Actor::Others]
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let way = match world.name {
            "lock" => Way::Lock,
            "lock-and-fence" => Way::Fence,
            _ => Way::Watch,
        };
        let sale = Sale::start(way, recorder).await?;
        let mut client_1 = sale.buyers(Actor::Client1, 0..1)?;
        let token = match way {
            Way::Watch => None,
            Way::Lock | Way::Fence => {
                let token = client_1.expect("acquired", recorder).await?;
                client_1.go_on()?;
                token
            }
        };
        client_1.expect("stock-read", recorder).await?;
        client_1.pause(recorder).await?;
        // It is told to take an item, and would, if it were not stopped.
        client_1.go_on()?;
        if way != Way::Watch {
            sale.lock.runs_out(Actor::Client1, token, recorder).await?;
        }
        sale.serve(1..HALF, recorder).await?;

        client_1.resume(recorder)?;
        if client_1.next(recorder).await? == "aborted" {
            client_1.take("stock-read", recorder).await?;
            client_1.go_on()?;
        } else {
            client_1.take("lease-lost", recorder).await?;
        }
        client_1.ends_with(0).await?;
        sale.note_stock(recorder).await?;
        sale.serve(HALF..BUYERS, recorder).await?;
        sale.outcome(recorder).await
    }
}

/// The stock and the lock, which are in one Redis.
struct Sale {
    lock: Lock,
    way: Way,
    key: String,
}

impl Sale {
    async fn start(way: Way, recorder: &mut Recorder) -> anyhow::Result<Self> {
        let lock = Lock::start(SALE, recorder).await?;
        let key = buyers::key(&SALE.parse::<ResourceName>()?);
        let () = lock.redis().command(&["HSET", &key, LEFT, &ITEMS.to_string()]).await?;
        let sale = Self { lock, way, key };
        sale.note_stock(recorder).await?;
        Ok(sale)
    }

    fn redis(&self) -> &Redis {
        self.lock.redis()
    }

    fn buyers(&self, actor: Actor, numbers: Range<u64>) -> anyhow::Result<Client> {
        let ttl = if actor == Actor::Client1 { TTL } else { LONG_TTL };
        let (way, redis) = (self.way, &self.redis().url());
        Client::start(actor, Work::Buyers { sale: SALE, way, ttl, numbers, redis })
    }

    /// Lets these buyers loose at once, and waits until all have been served.
    async fn serve(&self, numbers: Range<u64>, recorder: &mut Recorder) -> anyhow::Result<()> {
        let mut crowd = self.buyers(Actor::Others, numbers)?;
        crowd.expect_within("served", SERVED_WITHIN, recorder).await?;
        crowd.ends_with(0).await?;
        self.note_stock(recorder).await
    }

    /// How many are left, and how many were sold, as Redis has it.
    async fn stock(&self) -> anyhow::Result<(u64, u64)> {
        let left = self.redis().command(&["HGET", &self.key, LEFT]).await?;
        let fields: u64 = self.redis().command(&["HLEN", &self.key]).await?;
        Ok((left, fields - 1))
    }

    async fn note_stock(&self, recorder: &mut Recorder) -> anyhow::Result<()> {
        let (left, sold) = self.stock().await?;
        let stock = [("left", left), ("sold", sold), ("items", ITEMS)];
        let stock = stock.map(|(name, number)| (name.to_owned(), number.into()));
        recorder.note_with(Actor::Redis, "stock", None, Map::from_iter(stock));
        Ok(())
    }

    /// What the sale came to: in Redis, and by what the buyers tell.
    async fn outcome(&self, recorder: &Recorder) -> anyhow::Result<Outcome> {
        let (left, sold) = self.stock().await?;
        let sum = |name: &str, alone: &str| -> u64 {
            let events = recorder.events().map(|event| match event.event.as_str() {
                "served" => event.number(name).unwrap_or(0),
                event => u64::from(event == alone),
            });
            events.sum()
        };
        Ok(Outcome::default()
            .with("buyers", sum("buyers", "paused"))
            .with("items", ITEMS)
            .with("sold", sold)
            .with("left", left)
            .with("refused", sum("refused", "not-bought"))
            .with("transactions_aborted", sum("aborted", "aborted")))
    }
}
