//! How a lock of a state is acquired, renewed and released.
//!
//! Each step is an operation of the committer, on the row of the lock or on that of the state. A row of a
//! lock is changed only on the condition that it is as it was read, so that any number of servers may
//! share one database. No clock is trusted with the state: an expired lock passes to another client with
//! a higher token, and that claims the state before the client may read it.

use std::time::Duration;

use fence::{Fence, Holder, ResourceName, Token};

use super::lock::{Held, Lock, LockInfo};
use crate::{
    http::{problem::Problem, session::Session, values::Freshness},
    memory_budget::SMALL_BYTES,
    operation::{Action, Condition, Operation, Outcome},
    row::Row,
    store::WantedValue,
};

/// How often a step is tried while other clients change the lock at the same time.
const TRIES: usize = 16;

/// The lock of one state.
pub(super) struct Locks<'a> {
    session: &'a Session,
    state: &'a ResourceName,
    /// The resource that keeps the lock.
    lock: ResourceName,
}

impl<'a> Locks<'a> {
    /// The lock of a state, which is the resource `terraform/NAME`. It is kept in `terraform-lock/NAME`.
    pub(super) fn new(session: &'a Session, state: &'a ResourceName) -> Result<Self, Problem> {
        let name = state.as_str().strip_prefix("terraform/").expect("the route has this prefix");
        let lock = format!("terraform-lock/{name}").parse().map_err(Problem::malformed_name)?;
        Ok(Self { session, state, lock })
    }

    pub(super) async fn load(&self) -> Result<Lock, Problem> {
        let row = self
            .session
            .load(&self.lock, WantedValue::AtMost(SMALL_BYTES), Freshness::Durable)
            .await?;
        Lock::from_row(&self.lock, row)
    }

    async fn load_state(&self) -> Result<Row, Problem> {
        self.session.load(self.state, WantedValue::Description, Freshness::Durable).await
    }

    /// An operation on the state. The server itself has issued the token, so it is not too high.
    pub(super) fn on_state(&self, offered: Option<Fence>, action: Action) -> Operation {
        operation(self.state, offered, action)
    }

    /// Acquires the lock for the id, or renews it. When this returns, the lock's token has claimed the
    /// state: nothing that a former holder sends can change it any more.
    pub(super) async fn acquire(&self, info: LockInfo, ttl: Duration) -> Result<Held, Problem> {
        let mut granted = None;
        let acquired = self.try_acquire(info, ttl, &mut granted).await;
        // Another client sees the lock held from the first grant on.
        acquired
            .map_err(|problem| if granted.is_some() { problem.after_a_change() } else { problem })
    }

    /// Sets `granted` to the version of the lock's row as this call has granted it.
    async fn try_acquire(
        &self,
        info: LockInfo,
        ttl: Duration,
        granted: &mut Option<u64>,
    ) -> Result<Held, Problem> {
        let claimed_by_another = || {
            let lost = "another client has claimed the state under a higher token";
            Problem::state_lock_lost(self.state, lost)
        };
        for _ in 0..TRIES {
            // 1. Choose the token: that of the id, if it has the lock. Otherwise one above all that the
            //    lock or the state has seen.
            let lock = self.load().await?;
            let state = self.load_state().await?;
            let is_mine = lock.held.as_ref().is_some_and(|held| held.fence.holder == info.id);
            // Another request with this id may have renewed the lock since, and its client may have read.
            let is_granted_here = *granted == Some(lock.row.version);
            let token = match &lock.held {
                // A renewal that is rejected must not prolong the lock.
                Some(held)
                    if is_mine
                        && !is_granted_here
                        && state.highest_token() > Some(held.fence.token) =>
                {
                    return Err(claimed_by_another());
                }
                Some(held) if is_mine && !is_granted_here => held.fence.token,
                Some(held) if !is_mine && !held.is_expired() => {
                    return Err(held.problem(self.state));
                }
                _ => self.token_above(&[&lock.row, &state])?,
            };

            // 2. Grant the lock, unless another client was faster. From here on, only this client has
            //    this token.
            let held = Held::new(Fence { token, holder: info.id.clone() }, info.clone(), ttl);
            let Some(version) = self.write(&lock, &held).await? else {
                continue;
            };
            *granted = Some(version);

            // 3. Claim the state before the client reads it. If another client has claimed it by other
            //    means, a new grant may take a higher token. A renewed one may not: its client has read
            //    the state, and what it has read is void.
            let claim = self.on_state(Some(held.fence.clone()), Action::Claim);
            match self.session.submit(claim).await? {
                Outcome::Claimed { .. } => return Ok(held),
                _ if is_mine && !is_granted_here => return Err(claimed_by_another()),
                _ => {}
            }
        }
        Err(Problem::contended_lock(self.state))
    }

    /// Makes the lock last for a ttl from now on, unless another client has changed it. The state was
    /// written by now, so a failure is only logged: the lock expires earlier.
    pub(super) async fn renew(&self, lock: &Lock, held: &Held, ttl: Option<Duration>) {
        if let Err(problem) = self.write(lock, &held.renewed(ttl)).await {
            tracing::warn!(resource = %self.state, "a lock was not renewed: {problem:?}");
        }
    }

    /// Releases the lock if it has all of these ids; without any, whichever it has. A lock that is
    /// released already stays so: the client may not have got the first answer.
    pub(super) async fn release(&self, ids: &[Holder]) -> Result<(), Problem> {
        for _ in 0..TRIES {
            let lock = self.load().await?;
            let Some(held) = &lock.held else { return Ok(()) };
            if ids.iter().any(|id| *id != held.fence.holder) {
                let lost = "the state is locked under another ID";
                return Err(Problem::state_lock_lost(self.state, lost));
            }
            let delete = Action::Delete { condition: lock.unchanged() };
            if let Outcome::Deleted { .. } = self.change(&lock, &held.fence, delete).await? {
                if ids.is_empty() {
                    tracing::warn!(resource = %self.state, "a lock was released without its ID");
                }
                return Ok(());
            }
        }
        Err(Problem::contended_lock(self.state))
    }

    /// Deletes the state while nobody holds the lock, under a token that nobody has.
    pub(super) async fn delete_unlocked(&self) -> Result<Outcome, Problem> {
        for _ in 0..TRIES {
            // The state first: if a client acquires the lock after it is loaded, that client's token is
            // not below the one of this delete, which is then rejected, or rejects that client's claim.
            let state = self.load_state().await?;
            let lock = self.load().await?;
            if let Some(held) = lock.held.as_ref().filter(|held| !held.is_expired()) {
                return Err(held.problem(self.state));
            }
            let token = self.token_above(&[&lock.row, &state])?;
            let delete = Action::Delete { condition: Condition::default() };
            let offered = Fence { token, holder: Holder::EMPTY };
            let outcome = self.session.submit(self.on_state(Some(offered), delete)).await?;
            if !outcome.is_rejection() {
                return Ok(outcome);
            }
        }
        Err(Problem::contended_lock(self.state))
    }

    /// Writes the lock, and returns the version of its row, or nothing if it was not as it was read.
    async fn write(&self, lock: &Lock, held: &Held) -> Result<Option<u64>, Problem> {
        let write = Action::Write { content: held.content(), condition: lock.unchanged() };
        match self.change(lock, &held.fence, write).await? {
            Outcome::Written { version, .. } => Ok(Some(version)),
            _ => Ok(None),
        }
    }

    /// Changes the row of the lock for an owner, on a condition. A client that was too slow for its own
    /// condition has raised the fence of the row all the same. Then the change needs a higher token than
    /// the owner's.
    async fn change(&self, lock: &Lock, owner: &Fence, action: Action) -> Result<Outcome, Problem> {
        let is_overtaken = lock.row.highest_token() > Some(owner.token);
        let token = if is_overtaken { self.token_above(&[&lock.row])? } else { owner.token };
        let offered = Fence { token, holder: owner.holder.clone() };
        self.session.submit(operation(&self.lock, Some(offered), action)).await
    }

    fn token_above(&self, rows: &[&Row]) -> Result<Token, Problem> {
        let highest = rows.iter().filter_map(|row| row.highest_token()).max();
        let highest = highest.map_or(0, Token::as_u64);
        Token::new(highest + 1).map_err(|_| Problem::no_token_left(self.state))
    }
}

fn operation(resource: &ResourceName, offered: Option<Fence>, action: Action) -> Operation {
    let (resource, ceiling) = (resource.clone(), Token::MAX);
    Operation { resource, offered, ceiling, numbered: None, action }
}
