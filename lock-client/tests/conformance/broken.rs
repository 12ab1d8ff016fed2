//! A backend that breaks one promise.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use lock_client::{
    Moment, Order, Ttl,
    backend::{Attempt, Backend, BackendError, BackendFuture, Ownership, Status, Wakeups},
    conformance::{Failure, Subject},
    redis::Redis,
};
use tokio::{sync::Notify, time::sleep};

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
    ReleasesOthers,
    LosesNotifications,
    IgnoresOrder,
    OvertakesTries,
    TakesSilenceForNo,
    NeverGivesUp,
}

/// A Redis whose client has a fault.
pub(super) struct Broken {
    redis: OneRedis,
    fault: Fault,
}

impl Broken {
    pub(super) async fn start(fault: Fault) -> Self {
        Self { redis: OneRedis::start().await, fault }
    }
}

impl Subject for Broken {
    type Backend = Client;
    const IS_FAIR: bool = true;

    fn connect(&self) -> Client {
        let redis = Arc::new(self.redis.connect());
        Client { redis, fault: self.fault, granted: Arc::default() }
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

    /// The ownership of the same holder that has the lock now, if one has it.
    async fn present(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
    ) -> Result<Ownership, BackendError> {
        let held = self.redis.status(name).await?.held.map(|lock| lock.ownership);
        let same = held.filter(|present| present.holder == ownership.holder);
        Ok(same.unwrap_or_else(|| ownership.clone()))
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
            self.redis.subscribe(&self.name(name), holder, order).await
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
