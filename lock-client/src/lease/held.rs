//! The state of a lease: valid until a deadline, then lost or released for good.

#[cfg(feature = "storage")]
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};
use std::{sync::Mutex, time::Duration};

use fence::{Fence, ResourceName, Token};
use tokio::{sync::watch, time::timeout};
use tracing::Span;

#[cfg(feature = "storage")]
use crate::storage::{claim::SharedClaim, server_url::ServerUrl};
use crate::{
    backend::{BackendError, Ownership},
    clock::{LONGEST_TIMER, Moment},
    error::{LockServiceError, Lost, RenewError},
    mutex::Locked,
    observe::{self, Loss},
    service::LockService,
    ttl::Ttl,
};

#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) service: LockService,
    pub(crate) name: ResourceName,
    pub(crate) ownership: Ownership,
    pub(crate) ttl: Ttl,
    pub(crate) token: Token,
    /// A moment before the request was sent.
    pub(crate) asked: Moment,
    /// Whether another process may take the lock over.
    pub(crate) detachable: bool,
    /// The span of the caller of the acquire.
    pub(crate) caller: Span,
}

/// A held lock and its state, which the clones of a lease share.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) service: LockService,
    pub(crate) name: ResourceName,
    pub(crate) ownership: Ownership,
    pub(crate) ttl: Ttl,
    pub(crate) began: Moment,
    /// Whether another process may take the lock over.
    pub(super) detachable: bool,
    pub(crate) span: Span,
    state: watch::Sender<State>,
    /// The highest token that the lock service has returned, also after the deadline.
    last_token: Mutex<Token>,
    /// Held during a renewal or a reissue, because those of one lease must not overlap.
    update: tokio::sync::Mutex<()>,
    /// The lease's claims, by storage and resource.
    #[cfg(feature = "storage")]
    claims: Mutex<HashMap<(ServerUrl, ResourceName), SharedClaim>>,
    /// The last number of a write.
    #[cfg(feature = "storage")]
    sequence: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Valid { token: Token, deadline: Moment },
    Lost,
    Released,
}

impl Held {
    pub(super) fn new(granted: Granted) -> Self {
        let Granted { service, name, ownership, ttl, token, asked, detachable, caller } = granted;
        let span = observe::holding(&caller, &name, &ownership.holder, token);
        let state = State::Valid { token, deadline: asked + ttl.reliable() };
        Self {
            service,
            name,
            ownership,
            ttl,
            began: asked,
            detachable,
            span,
            state: watch::Sender::new(state),
            last_token: Mutex::new(token),
            update: tokio::sync::Mutex::default(),
            #[cfg(feature = "storage")]
            claims: Mutex::default(),
            #[cfg(feature = "storage")]
            sequence: AtomicU64::new(0),
        }
    }

    pub(super) fn token(&self) -> Result<Token, Lost> {
        match *self.state.borrow() {
            State::Valid { token, deadline } if !deadline.has_passed() => return Ok(token),
            State::Valid { .. } => {}
            State::Lost | State::Released => return Err(self.lost_error()),
        }
        Err(self.lose(Loss::Expired))
    }

    pub(crate) fn fence(&self) -> Result<Fence, Lost> {
        Ok(Fence { token: self.token()?, holder: self.ownership.holder.clone() })
    }

    pub(crate) fn remaining(&self) -> Duration {
        match *self.state.borrow() {
            State::Valid { deadline, .. } => deadline.remaining(),
            State::Lost | State::Released => Duration::ZERO,
        }
    }

    pub(super) fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state.subscribe();
        async move {
            loop {
                let State::Valid { deadline, .. } = *state.borrow_and_update() else {
                    return;
                };
                if deadline.has_passed() {
                    return;
                }
                // Without a sender, no clone of the lease is left to renew it.
                let pause = deadline.remaining().min(LONGEST_TIMER);
                if let Ok(Err(_)) = timeout(pause, state.changed()).await {
                    return;
                }
            }
        }
    }

    /// Sets a ttl. The ttl is determined once no other renewal or reissue is under way.
    pub(super) async fn renew(&self, ttl: impl FnOnce() -> Ttl) -> Result<(), RenewError> {
        let _update = self.update.lock().await;
        self.token()?;
        // The ttl may be the time that is left: it counts from a moment before it was read.
        let asked = Moment::now();
        let ttl = ttl();
        // From here on, the lock may expire sooner, if this ttl is shorter than the last.
        self.shorten(asked + ttl.reliable());
        let renewed = self.service.backend.renew(&self.name, &self.ownership, ttl).await;
        match renewed.map_err(|source| self.failed(source))? {
            Some(token) => {
                self.advance(token, Some(asked + ttl.reliable()))?;
                observe::renewed();
                Ok(())
            }
            None => {
                observe::renewal_rejected();
                Err(self.lose(Loss::NotOurs).into())
            }
        }
    }

    /// Swaps the token for a higher one, unless it is above `above` already.
    pub(crate) async fn reissue(&self, above: Token) -> Result<Token, RenewError> {
        let _update = self.update.lock().await;
        let token = self.token()?;
        if token > above {
            return Ok(token);
        }
        let reissued = self.service.backend.reissue(&self.name, &self.ownership, above).await;
        match reissued.map_err(|source| self.failed(source))? {
            Some(token) => {
                assert!(token > above, "a reissued token is above the requested one");
                self.advance(token, None)?;
                observe::reissued(&self.span, token);
                Ok(self.token()?)
            }
            None => Err(self.lose(Loss::NotOurs).into()),
        }
    }

    pub(super) async fn release(&self, deadline: Moment) -> Result<bool, LockServiceError> {
        let holder = &self.ownership.holder;
        let released = self.service.retry_until(deadline, || {
            // A renewal that was just stopped may have returned a higher one.
            self.service.backend.release(&self.name, holder, Some(self.last_token()))
        });
        released.await.map_err(|source| LockServiceError { lock: self.name.clone(), source })
    }

    /// The highest token that the lock service has returned.
    pub(super) fn last_token(&self) -> Token {
        *self.last_token.locked()
    }

    fn failed(&self, source: BackendError) -> RenewError {
        RenewError::LockService { lock: self.name.clone(), source }
    }

    fn lost_error(&self) -> Lost {
        Lost { lock: self.name.clone() }
    }

    fn shorten(&self, until: Moment) {
        self.state.send_if_modified(|state| match state {
            State::Valid { deadline, .. } if *deadline > until => {
                *deadline = until;
                true
            }
            _ => false,
        });
    }

    /// Sets a token that the lock service returned, and a new deadline after a renewal. If the old
    /// deadline has passed, the reply is too late and the lease is lost.
    fn advance(&self, returned: Token, renewed: Option<Moment>) -> Result<(), Lost> {
        {
            let mut last = self.last_token.locked();
            *last = returned.max(*last);
        }
        let mut in_time = false;
        self.state.send_if_modified(|state| match state {
            State::Valid { token, deadline } if !deadline.has_passed() => {
                *token = returned.max(*token);
                *deadline = renewed.unwrap_or(*deadline);
                in_time = true;
                true
            }
            _ => false,
        });
        if in_time { Ok(()) } else { Err(self.lose(Loss::Expired)) }
    }

    pub(crate) fn lose(&self, loss: Loss) -> Lost {
        let lost = self.state.send_if_modified(|state| {
            let valid = matches!(state, State::Valid { .. });
            if valid {
                *state = State::Lost;
            }
            valid
        });
        if lost {
            observe::lost(&self.span, loss, self.began.elapsed());
        }
        self.lost_error()
    }

    /// Makes the lease released. A lease that was lost before stays lost.
    pub(super) fn end(&self) {
        // It may have expired unnoticed.
        let _ = self.token();
        let released = self.state.send_if_modified(|state| {
            let valid = matches!(state, State::Valid { .. });
            if valid {
                *state = State::Released;
            }
            valid
        });
        if released {
            observe::released(&self.span, self.began.elapsed());
        }
    }

    #[cfg(feature = "storage")]
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    #[cfg(feature = "storage")]
    pub(crate) fn claim(&self, storage: &ServerUrl, resource: &ResourceName) -> SharedClaim {
        let mut claims = self.claims.locked();
        claims.entry((storage.clone(), resource.clone())).or_default().clone()
    }
}
