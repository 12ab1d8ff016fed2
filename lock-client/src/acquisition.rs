//! One acquire, from its first try to a lease or an error.

use std::{pin::pin, time::Duration};

use fence::{Holder, ResourceName};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};
use tracing::{Instrument, Span};

use crate::{
    AcquireError, Lease, Locks, Order, Terms, Ttl,
    backend::{Attempt, Contention, Wakeups},
    clock::Moment,
    lease::Granted,
    observe,
    retry::retried_until,
    terms::Wait,
};

/// How long to go on asking a lock service that doesn't answer, where the caller set no limit.
const UNAVAILABLE_PATIENCE: Duration = Duration::from_secs(10);
/// The same for a single try, which is repeated only because its reply may have been lost, and for the
/// first of a limited wait, which may have to connect.
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
    holder: Holder,
    /// Whether the lock service has answered.
    answered: bool,
    /// Whether there may be something to undo.
    unsettled: bool,
    runtime: Handle,
    caller: Span,
}

impl<'a> Acquisition<'a> {
    pub(crate) fn new(locks: &'a Locks, name: &'a ResourceName, terms: Terms) -> Self {
        let began = Moment::now();
        let contended_until = match terms.wait {
            Wait::No => Some(began),
            Wait::AtMost(wait) => Some(began + wait),
            Wait::Forever => None,
        };
        Self {
            locks,
            name,
            terms,
            ttl: terms.first_ttl(),
            began,
            contended_until,
            holder: Holder::random(),
            answered: false,
            unsettled: false,
            runtime: Handle::current(),
            caller: Span::current(),
        }
    }

    /// Tries, and waits, as the terms say.
    pub(crate) async fn run(mut self) -> Result<Lease, AcquireError> {
        let span = observe::acquiring(self.name, &self.holder);
        let acquiring = async {
            let result = self.acquire().await;
            if result.is_err() && self.unsettled {
                let undo = self.locks.backend.release(self.name, &self.holder, None);
                // Without an answer it is asked for again when this is dropped, in the background.
                if let Ok(Ok(_)) = timeout(LAST_TRY_PATIENCE, undo).await {
                    self.unsettled = false;
                }
            }
            observe::waited(self.began.elapsed(), &result);
            result
        };
        acquiring.instrument(span).await
    }

    async fn acquire(&mut self) -> Result<Lease, AcquireError> {
        // 1. Try. Most locks are free, and this is the only round trip then.
        let contention = match self.try_once().await? {
            Ok(lease) => return Ok(lease),
            Err(contention) => contention,
        };
        observe::contended();
        if self.out_of_time() {
            return Err(contention.into());
        }
        // 2. Wait for the first place among the waiters of this process, unless each waits in the
        // service's own queue. So a release wakes one client per process, not all of them.
        let _first_place = match self.terms.order {
            Order::Fair => None,
            Order::Unordered => {
                let mut first_place = pin!(self.locks.queues.first_place(self.name));
                loop {
                    let nap = LONGEST_SLEEP.min(self.time_left());
                    if let Ok(first_place) = timeout(nap, &mut first_place).await {
                        break Some(first_place);
                    }
                    // The waiter in the first place may be paused, or cut off from the lock service.
                    match self.try_once().await? {
                        Ok(lease) => return Ok(lease),
                        Err(contention) if self.out_of_time() => return Err(contention.into()),
                        Err(_) => {}
                    }
                }
            }
        };
        // 3. Subscribe before the next try: a release that follows the try is then always notified.
        let wakeups = self.subscribe().await?;
        loop {
            // 4. Try again.
            let contention = match self.try_once().await? {
                Ok(lease) => return Ok(lease),
                Err(contention) => contention,
            };
            if self.out_of_time() {
                return Err(contention.into());
            }
            // 5. Wait for a notification, but no longer than until the present lease expires: nobody
            // notifies of that. A notification may also be lost.
            let longest = match self.terms.order {
                Order::Unordered => LONGEST_SLEEP,
                Order::Fair => LONGEST_SLEEP_IN_QUEUE,
            };
            // One millisecond more, so that the lease has expired by then.
            let expired = |left: Duration| left + Duration::from_millis(1);
            let until_expired = contention.remaining.map_or(longest, expired);
            let nap = until_expired.min(longest).min(self.time_left());
            tokio::select! {
                () = wakeups.next() => {}
                () = sleep(nap) => {}
            }
        }
    }

    /// Tries once, and repeats the try as long as it is not answered.
    async fn try_once(&mut self) -> Result<Result<Lease, Contention>, AcquireError> {
        let give_up = self.give_up();
        let was_unsettled = self.unsettled;
        self.unsettled = true;
        let mut tries = 0;
        let attempt = retried_until(give_up, || {
            tries += 1;
            self.locks.backend.try_acquire(self.name, &self.holder, self.ttl, self.terms.order)
        });
        let attempt = attempt.await;
        self.answered |= attempt.is_ok();
        match attempt? {
            Attempt::Granted { token, ownership, asked } => {
                self.unsettled = false;
                let granted = Granted {
                    locks: self.locks.clone(),
                    name: self.name.clone(),
                    ownership,
                    ttl: self.ttl,
                    token,
                    asked,
                    caller: self.caller.clone(),
                };
                Ok(Ok(Lease::begin(granted, self.terms.renewal)))
            }
            Attempt::Busy(contention) => {
                // An earlier try that was not answered may still be carried out, and a fair one has left
                // a place in the queue.
                self.unsettled = was_unsettled || tries > 1 || self.terms.order == Order::Fair;
                Ok(Err(contention))
            }
        }
    }

    async fn subscribe(&self) -> Result<Wakeups, AcquireError> {
        let subscribe = || self.locks.backend.subscribe(self.name, &self.holder, self.terms.order);
        Ok(retried_until(self.give_up(), subscribe).await?)
    }

    /// Until when a request that is made now may stay without an answer.
    fn give_up(&self) -> Moment {
        let patience = match self.terms.wait {
            Wait::Forever => UNAVAILABLE_PATIENCE,
            Wait::AtMost(_) if self.answered => LAST_TRY_PATIENCE,
            Wait::AtMost(_) | Wait::No => TRY_PATIENCE,
        };
        let answer_by = Moment::now() + patience;
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
        let (backend, name, holder) =
            (self.locks.backend.clone(), self.name.clone(), self.holder.clone());
        let undo = async move {
            let give_up = Moment::now() + TRY_PATIENCE;
            let _ = retried_until(give_up, || backend.release(&name, &holder, None)).await;
        };
        // If the runtime has gone, nothing can be sent: the ttl then frees the lock, and the queue
        // forgets who isn't heard of.
        self.locks.background.spawn_on(undo, &self.runtime);
    }
}
