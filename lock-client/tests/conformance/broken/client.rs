//! The client of a broken backend.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use lock_client::{
    Moment, Order, Ttl,
    backend::{
        Attempt, Backend, BackendError, BackendFuture, Contention, Ownership, Status, Wakeups,
    },
    redis::Redis,
};
use tokio::{sync::Notify, time::sleep};

use super::{Fault, shared::Shared};

#[derive(Clone, Debug)]
pub(crate) struct Client {
    redis: Arc<Redis>,
    fault: Fault,
    /// The holders that were granted a lock.
    granted: Arc<Mutex<Vec<Holder>>>,
    shared: Arc<Shared>,
}

impl Client {
    pub(super) fn new(redis: Redis, fault: Fault, shared: Arc<Shared>) -> Self {
        Self { redis: Arc::new(redis), fault, granted: Arc::default(), shared }
    }

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
        let is_first = self.shared.is_first(name, holder);
        match attempt {
            Attempt::Granted { .. } if !is_first => {
                self.redis.release(name, holder, None).await?;
                Ok(Attempt::Busy(Contention { remaining: None, ahead: Some(1), nap: None }))
            }
            Attempt::Granted { .. } => {
                self.shared.forget_waiter(name, holder);
                Ok(attempt)
            }
            Attempt::Busy(_) => Ok(attempt),
        }
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
            if self.has(Fault::ReleasesAgain) && self.redis.status(name).await?.held.is_none() {
                return Ok(true);
            }
            if self.has(Fault::KeepsWaiters) {
                let held = self.redis.status(name).await?.held;
                if held.is_none_or(|lock| lock.ownership.holder != *holder) {
                    return Ok(false);
                }
            }
            self.shared.forget_waiter(name, holder);
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
                Fault::NotifiesOne => self.shared.if_first(name, wakeups),
                Fault::SubscribesOnce => self.shared.until_stop(wakeups),
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
