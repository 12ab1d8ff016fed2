//! One acquire, from its first try to a lease or an error.

use std::time::Duration;

use fence::{Holder, ResourceName};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use crate::{
    AcquireError, Lease, Locks, Order, Terms, Ttl,
    backend::{Attempt, BackendError, Ownership, Wakeups},
    clock::Moment,
    lease::Granted,
    observe,
    retry::retried_until,
    terms::{Renewal, Wait},
};

/// How long to go on asking a lock service that doesn't answer, where the caller set no limit.
const UNAVAILABLE_PATIENCE: Duration = Duration::from_secs(10);
/// The same for a single try, which is repeated only because its reply may have been lost.
const TRY_PATIENCE: Duration = Duration::from_secs(2);
/// The same at the end of a limited wait: each try has the time for one answer.
const LAST_TRY_PATIENCE: Duration = Duration::from_millis(500);
/// How long a waiter relies on being woken, before it looks for itself.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// The same in the queue, where it also shows that it is alive.
const LONGEST_SLEEP_IN_QUEUE: Duration = Duration::from_secs(1);

/// One acquire. Whatever ends it without a lease, its being dropped too, has the holder release what
/// it may have taken, and leave the queue.
pub(crate) struct Acquisition<'a> {
    locks: &'a Locks,
    name: &'a ResourceName,
    terms: Terms,
    ttl: Ttl,
    began: Moment,
    /// Until when somebody else may have the lock; `None` without a limit.
    contended_until: Option<Moment>,
    /// For how long the lock service may leave a request unanswered.
    unavailable: Duration,
    holder: Holder,
    /// Whether there may be something to undo.
    unsettled: bool,
}

impl<'a> Acquisition<'a> {
    pub(crate) fn new(locks: &'a Locks, name: &'a ResourceName, terms: Terms) -> Self {
        let began = Moment::now();
        let (contended_until, unavailable) = match terms.wait {
            Wait::No => (Some(began), TRY_PATIENCE),
            Wait::AtMost(wait) => (Some(began + wait), LAST_TRY_PATIENCE),
            Wait::Forever => (None, UNAVAILABLE_PATIENCE),
        };
        let ttl = match terms.renewal {
            Renewal::Automatic { max_hold } => terms.ttl.at_most(max_hold),
            Renewal::None => terms.ttl,
        };
        Self {
            locks,
            name,
            terms,
            ttl,
            began,
            contended_until,
            unavailable,
            holder: Holder::random(),
            unsettled: false,
        }
    }

    /// Tries, and waits, as the terms say.
    pub(crate) async fn run(mut self) -> Result<Lease, AcquireError> {
        let result = self.acquire().await;
        if result.is_err() && self.unsettled {
            let undo = self.locks.backend.release(self.name, &self.holder);
            // Without an answer it is asked for again when this is dropped, in the background.
            if let Ok(Ok(_)) = timeout(LAST_TRY_PATIENCE, undo).await {
                self.unsettled = false;
            }
        }
        observe::waited(self.began.elapsed(), &result);
        result
    }

    async fn acquire(&mut self) -> Result<Lease, AcquireError> {
        let remaining = match self.try_once().await? {
            Ok(lease) => return Ok(lease),
            Err(remaining) => remaining,
        };
        observe::contended();
        if self.out_of_time() {
            return Err(AcquireError::Contended { remaining });
        }
        // In no order, one of a process is enough to hear of a free lock.
        let _first_place = match self.terms.order {
            Order::Fair => None,
            Order::WokenAtOnce => {
                match timeout(self.time_left(), self.locks.queues.first_place(self.name)).await {
                    Ok(first_place) => Some(first_place),
                    Err(_) => return self.last_try().await,
                }
            }
        };
        // First subscribe, then try, then wait: whatever frees the lock after the try is heard.
        let wakeups = self.subscribe().await?;
        loop {
            let remaining = match self.try_once().await? {
                Ok(lease) => return Ok(lease),
                Err(remaining) => remaining,
            };
            if self.out_of_time() {
                return Err(AcquireError::Contended { remaining });
            }
            let longest = match self.terms.order {
                Order::WokenAtOnce => LONGEST_SLEEP,
                Order::Fair => LONGEST_SLEEP_IN_QUEUE,
            };
            // A millisecond later than told, so that it is over then.
            let until_over = remaining.map_or(longest, |left| left + Duration::from_millis(1));
            let nap = until_over.min(longest).min(self.time_left());
            tokio::select! {
                () = wakeups.next() => {}
                () = sleep(nap) => {}
            }
        }
    }

    /// Tries once. If somebody else has the lock, answers for how long yet.
    async fn try_once(&mut self) -> Result<Result<Lease, Option<Duration>>, AcquireError> {
        let give_up = self.give_up();
        let was_unsettled = std::mem::replace(&mut self.unsettled, true);
        let mut asked = Moment::now();
        let mut tries = 0;
        let attempt = retried_until(give_up, || {
            asked = Moment::now();
            tries += 1;
            self.locks.backend.try_acquire(self.name, &self.holder, self.ttl, self.terms.order)
        });
        match attempt.await {
            Ok(Attempt::Granted { token, grant }) => {
                self.unsettled = false;
                let ownership = Ownership { holder: self.holder.clone(), grant };
                let granted = Granted {
                    locks: self.locks.clone(),
                    name: self.name.clone(),
                    ownership,
                    ttl: self.ttl,
                    token,
                    asked,
                };
                Ok(Ok(Lease::begin(granted, self.terms.renewal)))
            }
            Ok(Attempt::Busy { remaining }) => {
                // An earlier try that was not answered may come late.
                self.unsettled = was_unsettled || tries > 1 || self.terms.order == Order::Fair;
                Ok(Err(remaining))
            }
            Err(BackendError::Rejected(reason)) => Err(AcquireError::Rejected(reason)),
            Err(BackendError::Unavailable(reason)) => Err(AcquireError::Unavailable(reason)),
        }
    }

    /// The try after the time to wait is over.
    async fn last_try(&mut self) -> Result<Lease, AcquireError> {
        self.try_once().await?.map_err(|remaining| AcquireError::Contended { remaining })
    }

    async fn subscribe(&self) -> Result<Wakeups, AcquireError> {
        let subscribe = || self.locks.backend.subscribe(self.name, &self.holder, self.terms.order);
        retried_until(self.give_up(), subscribe).await.map_err(|error| match error {
            BackendError::Rejected(reason) => AcquireError::Rejected(reason),
            BackendError::Unavailable(reason) => AcquireError::Unavailable(reason),
        })
    }

    /// Until when a request that is made now may stay without an answer.
    fn give_up(&self) -> Moment {
        let answer_by = Moment::now() + self.unavailable;
        self.contended_until.map_or(answer_by, |end| end.max(answer_by))
    }

    fn time_left(&self) -> Duration {
        self.contended_until.map_or(Duration::MAX, Moment::remaining)
    }

    fn out_of_time(&self) -> bool {
        self.time_left().is_zero()
    }
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        if !self.unsettled {
            return;
        }
        // Without a runtime nothing can be sent; the ttl then frees the lock, and the queue forgets
        // who isn't heard of.
        if let Ok(runtime) = Handle::try_current() {
            let (backend, name, holder) =
                (self.locks.backend.clone(), self.name.clone(), self.holder.clone());
            let undo = async move {
                let give_up = Moment::now() + TRY_PATIENCE;
                let _ = retried_until(give_up, || backend.release(&name, &holder)).await;
            };
            self.locks.background.spawn_on(undo, &runtime);
        }
    }
}
