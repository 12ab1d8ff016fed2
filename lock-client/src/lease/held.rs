//! The state of a lease: valid until a deadline, or over, which it stays.

#[cfg(feature = "storage")]
use std::collections::HashMap;
use std::{sync::Mutex, time::Duration};

use fence::{Fence, ResourceName, Token};
use tokio::{sync::watch, time::timeout};
use tracing::Span;

use super::{Lost, RenewError};
#[cfg(feature = "storage")]
use crate::storage::{Base, SharedClaim};
use crate::{
    Locks, Ttl,
    backend::{BackendError, Ownership},
    clock::Moment,
    observe,
};

/// What a lock service granted.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) locks: Locks,
    pub(crate) name: ResourceName,
    pub(crate) ownership: Ownership,
    pub(crate) ttl: Ttl,
    pub(crate) token: Token,
    /// When the request was sent.
    pub(crate) asked: Moment,
    /// In which span the acquire was asked for.
    pub(crate) caller: Span,
}

/// A held lock, and what is known of it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) locks: Locks,
    pub(crate) name: ResourceName,
    pub(crate) ownership: Ownership,
    pub(crate) ttl: Ttl,
    pub(crate) began: Moment,
    pub(crate) span: Span,
    state: watch::Sender<State>,
    /// The last token that the lock service told.
    told: Mutex<Token>,
    /// Renewals and reissues of one lease never overlap.
    exchange: tokio::sync::Mutex<()>,
    /// What the lease has claimed.
    #[cfg(feature = "storage")]
    claims: Mutex<HashMap<(Base, ResourceName), SharedClaim>>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Valid { token: Token, deadline: Moment },
    Lost,
    Released,
}

/// Why a lease is over that was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It is past its deadline.
    Expired,
    /// The lock service said that the lock is not ours.
    NotOurs,
    /// The storage refused the token: somebody else was let in.
    #[cfg_attr(not(feature = "storage"), expect(dead_code, reason = "only a storage refuses"))]
    Refused,
}

impl Held {
    pub(super) fn new(granted: Granted) -> Self {
        let Granted { locks, name, ownership, ttl, token, asked, caller } = granted;
        let span = observe::holding(&caller, &name, &ownership.holder, token);
        let state = State::Valid { token, deadline: asked + ttl.reliable() };
        Self {
            locks,
            name,
            ownership,
            ttl,
            began: asked,
            span,
            state: watch::Sender::new(state),
            told: Mutex::new(token),
            exchange: tokio::sync::Mutex::default(),
            #[cfg(feature = "storage")]
            claims: Mutex::default(),
        }
    }

    pub(super) fn token(&self) -> Result<Token, Lost> {
        match *self.state.borrow() {
            State::Valid { token, deadline } if !deadline.has_passed() => return Ok(token),
            State::Valid { .. } => {}
            State::Lost | State::Released => return Err(Lost),
        }
        self.lose(Loss::Expired);
        Err(Lost)
    }

    pub(crate) fn fence(&self) -> Result<Fence, Lost> {
        Ok(Fence { token: self.token()?, holder: self.ownership.holder.clone() })
    }

    pub(super) fn remaining(&self) -> Duration {
        match *self.state.borrow() {
            State::Valid { deadline, .. } => deadline.remaining(),
            State::Lost | State::Released => Duration::ZERO,
        }
    }

    /// Waits until the lease is over.
    pub(super) fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state.subscribe();
        async move {
            loop {
                let State::Valid { deadline, .. } = *state.borrow_and_update() else {
                    return;
                };
                if deadline.has_passed() {
                    return;
                }
                // Nobody can renew a lease that has gone.
                if let Ok(Err(_)) = timeout(deadline.remaining(), state.changed()).await {
                    return;
                }
            }
        }
    }

    /// Sets a ttl, which is asked for when no other exchange is under way.
    pub(super) async fn renew(&self, ttl: impl FnOnce() -> Ttl) -> Result<(), RenewError> {
        let _exchange = self.exchange.lock().await;
        self.token()?;
        let ttl = ttl();
        let asked = Moment::now();
        // From here on the lock may end sooner, if this is for less than before.
        self.shorten(asked + ttl.reliable());
        let renewed = self.locks.backend.renew(&self.name, &self.ownership, ttl).await;
        match renewed.map_err(RenewError::LockService)? {
            Some(token) => {
                self.advance(token, Some(asked + ttl.reliable()))?;
                observe::renewed();
                Ok(())
            }
            None => {
                observe::renewal_refused();
                Err(self.lose(Loss::NotOurs).into())
            }
        }
    }

    pub(crate) async fn reissue(&self, above: Token) -> Result<Token, RenewError> {
        let _exchange = self.exchange.lock().await;
        let token = self.token()?;
        if token > above {
            return Ok(token);
        }
        let reissued = self.locks.backend.reissue(&self.name, &self.ownership, above).await;
        match reissued.map_err(RenewError::LockService)? {
            Some(token) => {
                assert!(token > above, "a reissued token is above what it was asked to be");
                self.advance(token, None)?;
                observe::reissued(&self.span, token);
                Ok(self.token()?)
            }
            None => Err(self.lose(Loss::NotOurs).into()),
        }
    }

    /// Has the lock service free the lock, and answers whether it was ours.
    pub(super) async fn release(&self) -> Result<bool, BackendError> {
        let told = *self.told.lock().expect("nothing panics while it has this");
        self.locks.backend.release(&self.name, &self.ownership.holder, Some(told)).await
    }

    /// Relies on the lease no longer than until then.
    fn shorten(&self, until: Moment) {
        self.state.send_if_modified(|state| match state {
            State::Valid { deadline, .. } if *deadline > until => {
                *deadline = until;
                true
            }
            _ => false,
        });
    }

    /// Notes a token that the lock service told, and a new deadline. What comes after the old
    /// deadline comes too late.
    fn advance(&self, told: Token, renewed: Option<Moment>) -> Result<(), Lost> {
        {
            let mut last = self.told.lock().expect("nothing panics while it has this");
            *last = told.max(*last);
        }
        let mut in_time = false;
        self.state.send_if_modified(|state| match state {
            State::Valid { token, deadline } if !deadline.has_passed() => {
                *token = told.max(*token);
                *deadline = renewed.unwrap_or(*deadline);
                in_time = true;
                true
            }
            _ => false,
        });
        if in_time { Ok(()) } else { Err(self.lose(Loss::Expired)) }
    }

    /// Notes that the lease is over, if it isn't yet.
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
        Lost
    }

    /// Notes that the lock is given up. A lease that was lost before stays lost.
    pub(super) fn end(&self) {
        // It may have run out without anybody's noticing.
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

    /// What the lease has claimed of a resource in a storage.
    #[cfg(feature = "storage")]
    pub(crate) fn claim(&self, storage: &Base, resource: &ResourceName) -> SharedClaim {
        let mut claims = self.claims.lock().expect("nothing panics while it has this");
        claims.entry((storage.clone(), resource.clone())).or_default().clone()
    }
}
