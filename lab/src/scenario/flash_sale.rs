//! 1 000 buyers and 20 items. One buyer is paused between reading what is left and taking an item,
//! and half of the others have been served when it wakes up.

use std::{ops::Range, time::Duration};

use fence::ResourceName;
use testbed::Redis;

use super::{
    definition::Scenario,
    stage::{
        crowd::Crowd,
        redis_lock::{LONG_TTL, RedisLock, SHORT_TTL},
        scene::Scene,
    },
};
use crate::{
    client::{
        command::{Command, Terms},
        sale::{LEFT, key},
        setup::{Connections, CrowdSetup, LockSetup, SaleGuard, StoreSetup},
    },
    record::{Actor, Checks, Danger, Event, EventKind, Expected, Outcome, World},
};

const SALE: &str = "sale";
const LOCK: &str = "lock";
const LOCK_AND_FENCE: &str = "lock-and-fence";
const ITEMS: u64 = 20;
const BUYERS: u64 = 1_000;
/// Half of the buyers, counting the buyer that is paused.
const HALF: u64 = BUYERS / 2;
/// Many aborted transactions, for 20 items.
const MANY: u64 = 10 * ITEMS;
/// How long a buyer waits for the lock: as long as the crowd may take.
const WAIT: Duration = Duration::from_secs(60);
const SERVED_WITHIN: Duration = Duration::from_secs(30);

pub(super) const SCENARIO: Scenario = Scenario {
    name: "flash-sale",
    title: "1 000 buyers of 20 items",
    needs: "",
    seconds: 20,
    claim: "Of 20 items, 1 000 buyers under a lock buy more than 20 if one of them is paused past \
            its lease; with the lock's tokens they buy 20; with WATCH, MULTI and EXEC they buy 20 \
            too, after many transactions were aborted.",
    worlds: &[
        World {
            name: LOCK,
            title: "A LOCK, without a fence: the holder reads what is left, and takes an item",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &[("sold", Expected::AtLeast(ITEMS + 1)), ("rejected", Expected::Number(0))],
        },
        World {
            name: LOCK_AND_FENCE,
            title: "A LOCK AND ITS TOKEN: the holder claims, reads what is left, and takes an item \
                    with its token",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &[
                ("sold", Expected::Number(ITEMS)),
                ("rejected", Expected::Number(1)),
                ("transactions_aborted", Expected::Number(0)),
            ],
        },
        World {
            name: "watch-multi-exec",
            title: "WATCH, MULTI, EXEC: Redis aborts a transaction if what it read has changed, \
                    and the buyer tries again",
            danger: Danger::Averted,
            checks: Checks::Nothing,
            end: &[
                ("sold", Expected::Number(ITEMS)),
                ("transactions_aborted", Expected::AtLeast(MANY)),
            ],
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Others],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let guard = match scene.world.name {
        LOCK => SaleGuard::Lock,
        LOCK_AND_FENCE => SaleGuard::Fence,
        _ => SaleGuard::Watch,
    };
    let sale = Sale::open(guard, scene).await?;

    // Client 1 reads that 20 items are left, and is paused before it takes one.
    let mut client_1 = scene.client(Actor::Client1, SALE, sale.lock_setup(), sale.store_setup())?;
    let token = match guard {
        SaleGuard::Watch => None,
        SaleGuard::Lock | SaleGuard::Fence => {
            client_1.acquire_token(33, scene.ttl(SHORT_TTL)).await?
        }
    };
    client_1.send(&Command::ReadStock)?;
    client_1.expect(|kind| *kind == EventKind::StockRead { left: ITEMS }).await?;
    client_1.pause().await?;
    client_1.send(&Command::TakeItem)?;
    if guard != SaleGuard::Watch {
        sale.lock.expires(Actor::Client1, token).await?;
    }

    // Half of the others come, and buy all 20.
    sale.serve(1..HALF, scene).await?;

    // Client 1 wakes up, and takes an item.
    client_1.resume()?;
    match guard {
        SaleGuard::Watch => {
            client_1.expect(|kind| *kind == EventKind::Aborted).await?;
            client_1.expect(|kind| *kind == EventKind::StockRead { left: 0 }).await?;
        }
        SaleGuard::Lock | SaleGuard::Fence => {
            let done = |kind: &_| matches!(kind, EventKind::Bought { .. } | EventKind::NotBought);
            client_1.expect(done).await?;
            client_1.release().await?;
        }
    }
    sale.record_stock(scene).await?;

    // The other half comes.
    sale.serve(HALF..BUYERS, scene).await?;
    sale.outcome(&scene.recorder.events()).await
}

/// The stock and the lock, which are in one Redis.
struct Sale {
    lock: RedisLock,
    guard: SaleGuard,
    key: String,
}

impl Sale {
    async fn open(guard: SaleGuard, scene: &Scene) -> anyhow::Result<Self> {
        let lock = RedisLock::start(SALE, scene).await?;
        let key = key(&SALE.parse::<ResourceName>()?);
        let () = lock.redis().command(&["HSET", &key, LEFT, &ITEMS.to_string()]).await?;
        let sale = Self { lock, guard, key };
        sale.record_stock(scene).await?;
        Ok(sale)
    }

    fn lock_setup(&self) -> LockSetup {
        match self.guard {
            SaleGuard::Watch => LockSetup::None,
            SaleGuard::Lock | SaleGuard::Fence => self.lock.setup(),
        }
    }

    fn store_setup(&self) -> StoreSetup {
        StoreSetup::Sale { url: self.redis().url(), guard: self.guard }
    }

    fn redis(&self) -> &Redis {
        self.lock.redis()
    }

    /// Lets the buyers of these numbers come at once, and waits until all have been served.
    async fn serve(&self, buyers: Range<u64>, scene: &Scene) -> anyhow::Result<()> {
        let (first, size) = (buyers.start, buyers.end - buyers.start);
        let crowd = CrowdSetup { first, size, connections: Connections::Shared };
        let mut crowd: Crowd = scene.crowd(crowd, SALE, self.lock_setup(), self.store_setup())?;
        let take_item = [Command::ReadStock, Command::TakeItem];
        match self.guard {
            SaleGuard::Watch => crowd.send(&take_item)?,
            SaleGuard::Lock | SaleGuard::Fence => {
                let acquire = Command::Acquire(Terms::new(LONG_TTL).wait(WAIT));
                let [read, take] = take_item;
                crowd.send(&[acquire, read, take, Command::Release])?;
            }
        }
        crowd.wait(SERVED_WITHIN).await?;
        self.record_stock(scene).await
    }

    /// How many items are left and how many were sold, as Redis has it.
    async fn stock(&self) -> anyhow::Result<(u64, u64)> {
        let left = self.redis().command(&["HGET", &self.key, LEFT]).await?;
        let fields: u64 = self.redis().command(&["HLEN", &self.key]).await?;
        Ok((left, fields - 1))
    }

    async fn record_stock(&self, scene: &Scene) -> anyhow::Result<()> {
        let (left, sold) = self.stock().await?;
        scene.record(Actor::Redis, None, EventKind::Stock { left, sold, items: ITEMS });
        Ok(())
    }

    /// The end of the sale, as Redis has it and as the buyers report it.
    async fn outcome(&self, events: &[Event]) -> anyhow::Result<Outcome> {
        let (left, sold) = self.stock().await?;
        let [mut came, mut rejected, mut abortions] = [0; 3];
        for event in events {
            match event.kind {
                EventKind::Paused => came += 1,
                EventKind::NotBought => rejected += 1,
                EventKind::Aborted => abortions += 1,
                EventKind::Served { buyers, rejected: without, aborted, .. } => {
                    came += buyers;
                    rejected += without;
                    abortions += aborted;
                }
                _ => {}
            }
        }
        Ok(Outcome::default()
            .with("buyers", came)
            .with("items", ITEMS)
            .with("sold", sold)
            .with("left", left)
            .with("rejected", rejected)
            .with("transactions_aborted", abortions))
    }
}
