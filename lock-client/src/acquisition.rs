//! One acquire, from its first try to a lease or an error.

use std::{pin::pin, time::Duration};

use fence::{Holder, ResourceName};
use tokio::{runtime::Handle, time::timeout};
use tracing::{Instrument, Span};

use crate::{
    backend::{Attempt, BackendError, Contention, Wakeups},
    clock::Moment,
    error::AcquireError,
    lease::Lease,
    lease::held::Granted,
    local_queue::FirstPlace,
    observe,
    service::LockService,
    terms::{LONGEST_SLEEP, Order, Terms, Wait},
    ttl::Ttl,
};

/// How long a request without an answer is repeated in an unlimited wait, in answer time-outs.
const UNAVAILABLE_PATIENCE: u32 = 20;
/// The same for a single try, and for the first of a limited wait. A single try is repeated only
/// because its reply may be lost. The first try may have to connect.
const TRY_PATIENCE: u32 = 4;
/// The same at the end of a limited wait: enough for one answer.
const LAST_TRY_PATIENCE: u32 = 1;

/// One acquire. If it ends without a lease, or is dropped, it releases what it may have acquired,
/// and leaves the queue.
pub(crate) struct Acquisition<'a> {
    service: &'a LockService,
    name: &'a ResourceName,
    terms: Terms,
    ttl: Ttl,
    began: Moment,
    /// When a contended acquire stops waiting; `None` without a limit.
    wait_until: Option<Moment>,
    holder: Holder,
    answered: bool,
    /// Whether the holder may hold the lock or a place in the queue.
    needs_undo: bool,
    runtime: Handle,
    caller: Span,
}

enum Try {
    Acquired(Lease),
    Busy(Contention),
}

impl<'a> Acquisition<'a> {
    pub(crate) fn new(service: &'a LockService, name: &'a ResourceName, terms: Terms) -> Self {
        let began = Moment::now();
        let wait_until = match terms.wait {
            Wait::No => Some(began),
            Wait::AtMost(wait) => Some(began + wait),
            Wait::Forever => None,
        };
        Self {
            service,
            name,
            terms,
            ttl: terms.first_ttl(),
            began,
            wait_until,
            holder: Holder::random(),
            answered: false,
            needs_undo: false,
            runtime: Handle::current(),
            caller: Span::current(),
        }
    }

    pub(crate) async fn run(mut self) -> Result<Lease, AcquireError> {
        let span = observe::acquiring(self.name, &self.holder);
        let acquiring = async {
            let result = self.acquire().await;
            if result.is_err() && self.needs_undo {
                let undo = self.service.backend.release(self.name, &self.holder, None);
                // Without an answer, the drop of this value repeats it in the background.
                if let Ok(Ok(_)) = timeout(self.service.patience(LAST_TRY_PATIENCE), undo).await {
                    self.needs_undo = false;
                }
            }
            match &result {
                Ok(lease) => observe::acquired(self.began.elapsed(), lease.token().ok()),
                Err(error) => observe::not_acquired(self.began.elapsed(), error),
            }
            result
        };
        acquiring.instrument(span).await
    }

    async fn acquire(&mut self) -> Result<Lease, AcquireError> {
        // 1. Try. Most locks are free, and then this is the only round trip.
        let contention = match self.try_once().await? {
            Try::Acquired(lease) => return Ok(lease),
            Try::Busy(contention) => contention,
        };
        observe::contended();
        if self.out_of_time() {
            return Err(AcquireError::contended(self.name, contention));
        }
        // 2. Wait for the first place among the waiters of this process, unless each waits in the
        // service's own queue. So a release wakes one waiter per process, not all of them.
        let _first_place = match self.terms.order {
            Order::Fair => None,
            Order::Unordered => match self.wait_for_first_place().await? {
                Waited::Acquired(lease) => return Ok(lease),
                Waited::First(place) => Some(place),
            },
        };
        // 3. Subscribe before the next try: a release that follows the try is then always notified.
        let wakeups = self.subscribe().await?;
        loop {
            // 4. Try again.
            let contention = match self.try_once().await? {
                Try::Acquired(lease) => return Ok(lease),
                Try::Busy(contention) => contention,
            };
            if self.out_of_time() {
                return Err(AcquireError::contended(self.name, contention));
            }
            // 5. Wait for a notification. It may be lost, so try from time to time without one.
            let nap = longest_nap(contention).min(self.time_left());
            let _notified_or_not = timeout(nap, wakeups.next()).await;
        }
    }

    /// Waits for the first place in this process, and tries from time to time.
    async fn wait_for_first_place(&mut self) -> Result<Waited, AcquireError> {
        let mut first_place = pin!(self.service.queues.wait_for_first_place(self.name));
        loop {
            let nap = LONGEST_SLEEP.min(self.time_left());
            if let Ok(place) = timeout(nap, &mut first_place).await {
                return Ok(Waited::First(place));
            }
            // The waiter in the first place may be paused, or cut off from the lock service.
            match self.try_once().await? {
                Try::Acquired(lease) => return Ok(Waited::Acquired(lease)),
                Try::Busy(contention) if self.out_of_time() => {
                    return Err(AcquireError::contended(self.name, contention));
                }
                Try::Busy(_) => {}
            }
        }
    }

    /// Tries once, and repeats the request until it is answered.
    async fn try_once(&mut self) -> Result<Try, AcquireError> {
        let needed_undo = self.needs_undo;
        self.needs_undo = true;
        let mut requests = 0;
        let attempt = self.service.retry_until(self.answer_by(), || {
            requests += 1;
            self.request()
        });
        let attempt = attempt.await;
        self.answered |= attempt.is_ok();
        match attempt.map_err(|error| AcquireError::from_backend(self.name, error))? {
            Attempt::Granted { token, ownership, asked } => {
                self.needs_undo = false;
                let granted = Granted {
                    service: self.service.clone(),
                    name: self.name.clone(),
                    ownership,
                    ttl: self.ttl,
                    token,
                    asked,
                    detachable: self.terms.detachable,
                    caller: self.caller.clone(),
                };
                Ok(Try::Acquired(Lease::start(granted, self.terms.renewal)))
            }
            Attempt::Busy(contention) => {
                // An earlier request without an answer may still be carried out. A fair try has
                // left a place in the queue.
                self.needs_undo = needed_undo || requests > 1 || self.terms.order == Order::Fair;
                Ok(Try::Busy(contention))
            }
        }
    }

    /// Sends one request. A grant that arrives after its deadline counts as no answer: the next
    /// request sets the full ttl again, or finds that another client holds the lock.
    async fn request(&self) -> Result<Attempt, BackendError> {
        let backend = &self.service.backend;
        let (holder, ttl, order) = (&self.holder, self.ttl, self.terms.order);
        let attempt = match self.terms.detachable {
            true => backend.try_acquire_detachable(self.name, holder, ttl, order).await?,
            false => backend.try_acquire(self.name, holder, ttl, order).await?,
        };
        match attempt {
            Attempt::Granted { asked, .. } if (asked + ttl.reliable()).has_passed() => {
                let reason = format!("{}: granted too late for this ttl", backend.address());
                Err(BackendError::Unavailable(reason.into()))
            }
            attempt => Ok(attempt),
        }
    }

    async fn subscribe(&self) -> Result<Wakeups, AcquireError> {
        let subscribed = self.service.retry_until(self.answer_by(), || {
            self.service.backend.subscribe(self.name, &self.holder, self.terms.order)
        });
        subscribed.await.map_err(|error| AcquireError::from_backend(self.name, error))
    }

    /// The moment until which a request that is sent now is repeated without an answer.
    fn answer_by(&self) -> Moment {
        let patience = match self.terms.wait {
            Wait::Forever => UNAVAILABLE_PATIENCE,
            Wait::AtMost(_) if self.answered => LAST_TRY_PATIENCE,
            Wait::AtMost(_) | Wait::No => TRY_PATIENCE,
        };
        let answer_by = Moment::now() + self.service.patience(patience);
        self.wait_until.map_or(answer_by, |end| end.max(answer_by))
    }

    fn time_left(&self) -> Duration {
        self.wait_until.map_or(Duration::MAX, Moment::remaining)
    }

    fn out_of_time(&self) -> bool {
        self.time_left().is_zero()
    }
}

/// How long a waiter sleeps without a notification.
fn longest_nap(contention: Contention) -> Duration {
    // Nobody notifies when a lease expires. One millisecond more, so that it has expired by then.
    let expired = |left: Duration| left + Duration::from_millis(1);
    let own = || contention.remaining.map_or(LONGEST_SLEEP, expired).min(LONGEST_SLEEP);
    contention.nap.unwrap_or_else(own)
}

/// How the wait for the first place in this process ended.
enum Waited {
    First(FirstPlace),
    Acquired(Lease),
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        if !self.needs_undo {
            return;
        }
        let (service, name, holder) =
            (self.service.clone(), self.name.clone(), self.holder.clone());
        let undo = async move {
            let release = || service.backend.release(&name, &holder, None);
            let _ =
                service.retry_until(Moment::now() + service.patience(TRY_PATIENCE), release).await;
        };
        // If the runtime has ended, nothing can be sent. Then the lock is free after its ttl, and
        // the queue removes the holder.
        self.service.background.spawn_on(undo, &self.runtime);
    }
}
