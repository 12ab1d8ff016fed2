//! A client that acquires a lock several times, and uses its leases in every possible way.

use std::time::Duration;

use fence::{Fence, ResourceName, Token};
use lock_client::{AcquireError, Lease, Locks, Terms, Ttl};
use rand::{RngExt, rngs::StdRng};
use tokio::time::{sleep, timeout};

use super::{
    storage::{Rejected, Storage},
    witness::Witness,
};
use crate::lock_service::ttl;

/// The longest ttl that a client requests.
pub(super) const LONGEST_TTL: Duration = Duration::from_millis(150);

/// A client of the lock that guards a storage.
pub(super) struct Client<'a> {
    pub(super) locks: Locks,
    pub(super) name: &'a ResourceName,
    pub(super) storage: &'a Storage,
    pub(super) witness: &'a Witness,
    pub(super) random: StdRng,
    /// Whether so many nodes may have no vote that a new client gives up.
    pub(super) may_be_rejected: bool,
}

/// A lease, and its entry in the history.
struct Holding {
    lease: Lease,
    ttl: Ttl,
    span: usize,
    /// When the lease has ended for certain.
    over: Duration,
}

/// The lease is lost, or the outcome of its last step is unknown.
struct Over;

impl Client<'_> {
    /// Acquires the lock several times. Returns the locks, which may still have work in the
    /// background.
    pub(super) async fn run(mut self) -> Locks {
        for _ in 0..self.random.random_range(3..=6) {
            if let Some(mut holding) = self.acquire().await {
                // A lease that ended early is released, too.
                let _ = self.hold(&mut holding).await;
                self.give_up(holding.lease).await;
            }
            self.pause(20).await;
        }
        self.locks
    }

    async fn acquire(&mut self) -> Option<Holding> {
        let ttl = ttl(self.random.random_range(30..=LONGEST_TTL.as_millis() as u64));
        let terms = Terms::new(ttl);
        let terms = match self.random.random_range(0..2) {
            0 => terms.no_wait(),
            _ => terms.wait(self.up_to(200)),
        };
        let max_hold = LONGEST_TTL + self.up_to(100);
        let (terms, longest) = match self.random.random_range(0..4) {
            0 => (terms, Duration::MAX),
            // The last renewal is for at least the shortest ttl.
            1 => (terms.max_hold(max_hold), max_hold + Ttl::MIN.as_duration()),
            _ => (terms.without_renewal(), ttl.reliable()),
        };
        let is_patient = self.random.random_bool(0.85);
        let patience = if is_patient { Duration::MAX } else { self.up_to(20) };
        let asked = self.witness.now();
        match timeout(patience, self.locks.acquire(self.name, terms)).await {
            Ok(Ok(lease)) => {
                self.witness.record_token(&lease, asked);
                let over = self.witness.now().saturating_add(longest);
                let span = self.witness.span(&lease, over);
                Some(Holding { lease, ttl, span, over })
            }
            Ok(Err(AcquireError::Rejected { source, .. })) if !self.may_be_rejected => {
                panic!("a node that may vote rejected it: {source}")
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// Claims, and takes some random steps until the lease is over.
    async fn hold(&mut self, holding: &mut Holding) -> Result<(), Over> {
        let claimed = self.claim(&holding.lease).await?;
        for _ in 0..self.random.random_range(1..=5) {
            match self.random.random_range(0..10) {
                0..=4 => self.append(&claimed).await?,
                5 | 6 => self.renew(holding).await?,
                7 => {
                    let token = holding.lease.token().map_err(|_| Over)?.as_u64();
                    let above = token + self.random.random_range(0..3);
                    self.reissue(&holding.lease, Token::new(above).unwrap()).await?;
                }
                8 => self.pause(20).await,
                _ => self.pause(2 * LONGEST_TTL.as_millis() as u64).await,
            }
            // It continues even if the lease is over, like a client that was paused.
            let _ = self.witness.look(&holding.lease, holding.span);
        }
        Ok(())
    }

    /// Claims with the lease's token. After a rejection, it reissues the token and tries again.
    async fn claim(&mut self, lease: &Lease) -> Result<Fence, Over> {
        loop {
            let fence = lease.fence().map_err(|_| Over)?;
            match self.storage.read(&fence) {
                Ok(_) => return Ok(fence),
                Err(Rejected(above)) => self.reissue(lease, above).await?,
            }
        }
    }

    /// Reads and writes with the token of the claim, even if the lease has ended in between.
    async fn append(&mut self, claimed: &Fence) -> Result<(), Over> {
        let mut value = self.storage.read(claimed).map_err(|_| Over)?;
        let longest = if self.random.random_bool(0.8) { 10 } else { 200 };
        self.pause(longest).await;
        let append = self.witness.append();
        value.push(append);
        self.storage.write(claimed, value).map_err(|_| Over)?;
        self.witness.acknowledged(append);
        Ok(())
    }

    async fn renew(&mut self, holding: &mut Holding) -> Result<(), Over> {
        let asked = self.witness.now();
        let renewed = holding.lease.renew().await;
        renewed.map_err(|_| Over)?;
        self.witness.record_token(&holding.lease, asked);
        holding.over = holding.over.max(self.witness.now() + holding.ttl.reliable());
        holding.span = self.witness.span(&holding.lease, holding.over);
        Ok(())
    }

    async fn reissue(&mut self, lease: &Lease, above: Token) -> Result<(), Over> {
        let asked = self.witness.now();
        let token = lease.reissue(above).await.map_err(|_| Over)?;
        assert!(token > above, "{token} must be above {above}");
        self.witness.record_token(lease, asked);
        Ok(())
    }

    async fn give_up(&mut self, lease: Lease) {
        match self.random.random_range(0..4) {
            0 => drop(lease),
            1 => drop(timeout(self.up_to(5), lease.release()).await),
            _ => drop(lease.release().await),
        }
    }

    async fn pause(&mut self, longest_ms: u64) {
        sleep(self.up_to(longest_ms)).await;
    }

    fn up_to(&mut self, ms: u64) -> Duration {
        Duration::from_millis(ms).mul_f64(self.random.random_range(0.0..1.0))
    }
}
