//! A backend that breaks one promise.

use std::{
    collections::HashMap,
    future::pending,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use lock_client::{
    Moment, Order, Ttl,
    backend::{
        Attempt, Backend, BackendError, BackendFuture, Contention, Ownership, Status, Wakeups,
    },
    conformance::{Failure, Subject},
    redis::Redis,
};
use tokio::{sync::Notify, task::JoinSet, time::sleep};

use super::services::OneRedis;

/// How it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    GrantsTwice,
    ChecksThenActs,
    ForgetsTokens,
    LowercasesNames,
    CountsFromTheReply,
    HalvesTtl,
    DoublesTtl,
    ForgetsHolders,
    IgnoresGrants,
    RenewsNothing,
    RenewalSetsShortTtl,
    RenewsExpiredLeases,
    ReissuesTheSame,
    ReissueSetsShortTtl,
    ReleasesOthers,
    LosesNotifications,
    NotifiesOne,
    SubscribesOnce,
    IgnoresOrder,
    KeepsWaiters,
    WaitsForTheDead,
    OvertakesTries,
    TakesSilenceForNo,
    NeverGivesUp,
}

/// A Redis whose client has a fault.
pub(super) struct Broken<const IS_FAIR: bool = true> {
    redis: OneRedis,
    fault: Fault,
    shared: Arc<Shared>,
}

/// What all clients know.
#[derive(Debug, Default)]
struct Shared {
    /// How often the service was stopped.
    stops: AtomicUsize,
    /// The one subscription of each name that is notified.
    subscribed: Mutex<HashMap<ResourceName, Weak<()>>>,
    /// The waiters of each name in their order.
    waiters: Mutex<HashMap<ResourceName, Vec<Holder>>>,
}

impl<const IS_FAIR: bool> Broken<IS_FAIR> {
    pub(super) async fn start(fault: Fault) -> Self {
        Self { redis: OneRedis::start().await, fault, shared: Arc::default() }
    }
}

impl<const IS_FAIR: bool> Subject for Broken<IS_FAIR> {
    type Backend = Client;
    const IS_FAIR: bool = IS_FAIR;

    fn connect(&self) -> Client {
        let redis = Arc::new(self.redis.connect());
        let shared = self.shared.clone();
        Client { redis, fault: self.fault, granted: Arc::default(), shared }
    }

    fn shortest_ttl(&self) -> Ttl {
        self.redis.shortest_ttl()
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        self.redis.pause().await
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        self.redis.resume().await
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        self.shared.stops.fetch_add(1, Ordering::SeqCst);
        self.redis.stop().await
    }

    async fn start(&mut self) -> Result<(), Failure> {
        self.redis.start().await
    }
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    redis: Arc<Redis>,
    fault: Fault,
    /// The holders that were granted a lock.
    granted: Arc<Mutex<Vec<Holder>>>,
    shared: Arc<Shared>,
}

impl Client {
    fn was_granted(&self, ownership: &Ownership) -> bool {
        self.granted.lock().unwrap().contains(&ownership.holder)
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn name(&self, name: &ResourceName) -> ResourceName {
        match self.fault {
            Fault::LowercasesNames => name.as_str().to_lowercase().parse().unwrap(),
            _ => name.clone(),
        }
    }

    fn granted_ttl(&self, ttl: Ttl) -> Ttl {
        match self.fault {
            Fault::HalvesTtl => Ttl::new(ttl.as_duration() / 2).unwrap(),
            Fault::DoublesTtl => Ttl::new(ttl.as_duration() * 2).unwrap(),
            _ => ttl,
        }
    }

    /// Takes the lock, also from a client that has taken it meanwhile.
    async fn take(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
    ) -> Result<Attempt, BackendError> {
        loop {
            let attempt = self.redis.try_acquire(name, holder, ttl, Order::Unordered).await?;
            if let Attempt::Granted { .. } = attempt {
                return Ok(attempt);
            }
            if let Some(lock) = self.redis.status(name).await?.held {
                self.redis.release(name, &lock.ownership.holder, None).await?;
            }
        }
    }

    /// The ownership of the same holder that is held now, if one is.
    async fn present(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
    ) -> Result<Ownership, BackendError> {
        let held = self.redis.status(name).await?.held.map(|lock| lock.ownership);
        let same = held.filter(|present| present.holder == ownership.holder);
        Ok(same.unwrap_or_else(|| ownership.clone()))
    }

    /// Grants the lock only to the waiter that came first, dead or alive.
    async fn first_come(
        &self,
        name: &ResourceName,
        holder: &Holder,
        attempt: Attempt,
    ) -> Result<Attempt, BackendError> {
        let is_first = {
            let mut waiters = self.shared.waiters.lock().unwrap();
            let waiters = waiters.entry(name.clone()).or_default();
            if !waiters.contains(holder) {
                waiters.push(holder.clone());
            }
            waiters[0] == *holder
        };
        match attempt {
            Attempt::Granted { .. } if !is_first => {
                self.redis.release(name, holder, None).await?;
                Ok(Attempt::Busy(Contention { remaining: None, ahead: Some(1), nap: None }))
            }
            Attempt::Granted { .. } => {
                self.forget_waiter(name, holder);
                Ok(attempt)
            }
            Attempt::Busy(_) => Ok(attempt),
        }
    }

    fn forget_waiter(&self, name: &ResourceName, holder: &Holder) {
        if let Some(waiters) = self.shared.waiters.lock().unwrap().get_mut(name) {
            waiters.retain(|waiter| waiter != holder);
        }
    }

    /// Passes notifications on until the service stops.
    fn until_stop(&self, wakeups: Wakeups) -> Wakeups {
        let shared = self.shared.clone();
        let stops = shared.stops.load(Ordering::SeqCst);
        passed_on_while(wakeups, move || shared.stops.load(Ordering::SeqCst) == stops, ())
    }

    /// Passes notifications on, unless there is another subscription to the name.
    fn if_first(&self, name: &ResourceName, wakeups: Wakeups) -> Wakeups {
        let own = Arc::new(());
        let mut subscribed = self.shared.subscribed.lock().unwrap();
        let is_first = subscribed.get(name).is_none_or(|other| other.strong_count() == 0);
        if is_first {
            subscribed.insert(name.clone(), Arc::downgrade(&own));
        }
        passed_on_while(wakeups, move || is_first, own)
    }

    /// Turns an unknown outcome into another answer.
    async fn answer<T>(&self, result: Result<T, BackendError>) -> Result<T, BackendError> {
        match result {
            Err(BackendError::Unavailable(source)) if self.has(Fault::TakesSilenceForNo) => {
                Err(BackendError::Rejected(source))
            }
            Err(BackendError::Unavailable(source))
                if self.has(Fault::NeverGivesUp) && source.to_string().contains("refused") =>
            {
                pending().await
            }
            result => result,
        }
    }
}

/// Passes notifications on as long as a condition holds.
fn passed_on_while(
    wakeups: Wakeups,
    condition: impl Fn() -> bool + Send + 'static,
    subscription: impl Send + Sync + 'static,
) -> Wakeups {
    let freed = Arc::new(Notify::new());
    let (mut passing, notified) = (JoinSet::new(), freed.clone());
    passing.spawn(async move {
        loop {
            wakeups.next().await;
            if condition() {
                notified.notify_one();
            }
        }
    });
    Wakeups::new(freed, (passing, subscription))
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

impl Backend for Client {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(async move {
            let order = if self.has(Fault::IgnoresOrder) { Order::Unordered } else { order };
            let random = Holder::random();
            let holder = if self.has(Fault::ForgetsHolders) { &random } else { holder };
            if self.has(Fault::OvertakesTries) {
                let (client, name, holder) = (self.redis.clone(), name.clone(), holder.clone());
                let late = tokio::spawn(async move {
                    sleep(Duration::from_millis(20)).await;
                    client.try_acquire(&name, &holder, ttl, order).await
                });
                return late.await.unwrap();
            }
            let name = self.name(name);
            if self.has(Fault::ChecksThenActs) && self.redis.status(&name).await?.held.is_none() {
                sleep(Duration::from_millis(2)).await;
                return self.take(&name, holder, ttl).await;
            }
            let ttl = self.granted_ttl(ttl);
            let tried = self.redis.try_acquire(&name, holder, ttl, order).await;
            let attempt = self.answer(tried).await?;
            if self.has(Fault::WaitsForTheDead) && order == Order::Fair {
                return self.first_come(&name, holder, attempt).await;
            }
            if let Attempt::Granted { ownership, .. } = &attempt {
                self.granted.lock().unwrap().push(ownership.holder.clone());
            }
            match attempt {
                Attempt::Busy(_) if self.has(Fault::GrantsTwice) => {
                    let ownership = Ownership { holder: holder.clone(), grant: token(7) };
                    Ok(Attempt::Granted { token: token(7), ownership, asked: Moment::now() })
                }
                Attempt::Granted { ownership, asked, .. } if self.has(Fault::ForgetsTokens) => {
                    // Distinct among clients that race, but not higher.
                    let reversed = u64::MAX / 20_000 - ownership.grant.as_u64();
                    Ok(Attempt::Granted { token: token(reversed), ownership, asked })
                }
                Attempt::Granted { token, ownership, .. }
                    if self.has(Fault::CountsFromTheReply) =>
                {
                    Ok(Attempt::Granted { token, ownership, asked: Moment::now() })
                }
                attempt => Ok(attempt),
            }
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            if self.has(Fault::RenewsNothing) {
                return Ok(Some(ownership.grant));
            }
            let short = Ttl::from_secs(2).unwrap();
            let ttl = if self.has(Fault::RenewalSetsShortTtl) { short } else { ttl };
            let ownership = &match self.fault {
                Fault::IgnoresGrants => self.present(name, ownership).await?,
                _ => ownership.clone(),
            };
            let renewed = self.redis.renew(&self.name(name), ownership, ttl).await;
            match self.answer(renewed).await? {
                // It believes its own clock.
                None if self.has(Fault::RenewsExpiredLeases) && self.was_granted(ownership) => {
                    Ok(Some(ownership.grant))
                }
                renewed => Ok(renewed),
            }
        })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let ownership = &match self.fault {
                Fault::IgnoresGrants => self.present(name, ownership).await?,
                _ => ownership.clone(),
            };
            let reissued = self.redis.reissue(&self.name(name), ownership, above).await;
            match self.answer(reissued).await? {
                Some(_) if self.has(Fault::ReissuesTheSame) => Ok(Some(above)),
                Some(_) if self.has(Fault::ReissueSetsShortTtl) => {
                    self.redis.renew(name, ownership, Ttl::from_secs(2).unwrap()).await
                }
                reissued => Ok(reissued),
            }
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        token: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            if self.has(Fault::ReleasesOthers) {
                let held = self.redis.status(name).await?.held;
                let owner = held.map_or_else(|| holder.clone(), |held| held.ownership.holder);
                return self.redis.release(name, &owner, token).await;
            }
            if self.has(Fault::KeepsWaiters) {
                let held = self.redis.status(name).await?.held;
                if held.is_none_or(|lock| lock.ownership.holder != *holder) {
                    return Ok(false);
                }
            }
            self.forget_waiter(name, holder);
            let released = self.redis.release(&self.name(name), holder, token).await;
            self.answer(released).await
        })
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(async move {
            if self.has(Fault::LosesNotifications) {
                return Ok(Wakeups::new(Arc::new(Notify::new()), ()));
            }
            let wakeups = self.redis.subscribe(&self.name(name), holder, order).await?;
            Ok(match self.fault {
                Fault::NotifiesOne => self.if_first(name, wakeups),
                Fault::SubscribesOnce => self.until_stop(wakeups),
                _ => wakeups,
            })
        })
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        Box::pin(async move {
            let status = self.redis.status(&self.name(name)).await;
            self.answer(status).await
        })
    }

    fn address(&self) -> String {
        self.redis.address()
    }
}
