//! A client that takes a lock again and again, and does with its leases whatever one may do.

use std::time::Duration;

use fence::{Fence, ResourceName, Token};
use lock_client::{AcquireError, Lease, Locks, Terms, Ttl};
use rand::{RngExt, rngs::StdRng};
use tokio::time::{sleep, timeout};

use super::{
    storage::{Refused, Storage},
    witness::Witness,
};
use crate::lock_service::ttl;

/// The longest for which a client asks for the lock.
pub(super) const LONGEST_TTL: Duration = Duration::from_millis(150);

/// A client of the lock that guards a storage.
pub(super) struct Client<'a> {
    pub(super) locks: Locks,
    pub(super) name: &'a ResourceName,
    pub(super) storage: &'a Storage,
    pub(super) witness: &'a Witness,
    pub(super) random: StdRng,
}

/// A lease, and what was noted of it.
struct Holding {
    lease: Lease,
    ttl: Ttl,
    span: usize,
    /// When it is over for certain.
    over: Duration,
}

/// The lease is lost, or nobody knows what became of it.
struct Over;

impl Client<'_> {
    /// Takes the lock some times. Gives back what has to settle.
    pub(super) async fn play(mut self) -> Locks {
        for _ in 0..self.random.random_range(3..=6) {
            if let Some(mut holding) = self.acquire().await {
                // What ended early is released all the same.
                let _ = self.hold(&mut holding).await;
                self.part_with(holding.lease).await;
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
            // Its last renewal is for the shortest ttl at least.
            1 => (terms.max_hold(max_hold), max_hold + Ttl::MIN.as_duration()),
            _ => (terms.without_renewal(), ttl.reliable()),
        };
        let is_patient = self.random.random_bool(0.85);
        let patience = if is_patient { Duration::MAX } else { self.up_to(20) };
        let asked = self.witness.now();
        match timeout(patience, self.locks.acquire(self.name, terms)).await {
            Ok(Ok(lease)) => {
                self.witness.told(&lease, asked);
                let over = self.witness.now().saturating_add(longest);
                let span = self.witness.span(&lease, over);
                Some(Holding { lease, ttl, span, over })
            }
            Ok(Err(AcquireError::Rejected(why))) => panic!("a node that may vote refused: {why}"),
            Ok(Err(_)) | Err(_) => None,
        }
    }

    /// Claims, and goes on until the lease is over, or for as long as it likes.
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
            // It may go on with a lease that it believes to have, as one does that was paused.
            let _ = self.witness.look(&holding.lease, holding.span);
        }
        Ok(())
    }

    /// Claims with the lease's token; if that is refused, with a higher one, if the lock is still ours.
    async fn claim(&mut self, lease: &Lease) -> Result<Fence, Over> {
        loop {
            let fence = lease.fence().map_err(|_| Over)?;
            match self.storage.read(&fence) {
                Ok(_) => return Ok(fence),
                Err(Refused(above)) => self.reissue(lease, above).await?,
            }
        }
    }

    /// Reads and writes with the token of the claim, whatever became of the lease in between.
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
        self.witness.told(&holding.lease, asked);
        holding.over = holding.over.max(self.witness.now() + holding.ttl.reliable());
        holding.span = self.witness.span(&holding.lease, holding.over);
        Ok(())
    }

    async fn reissue(&mut self, lease: &Lease, above: Token) -> Result<(), Over> {
        let asked = self.witness.now();
        let token = lease.reissue(above).await.map_err(|_| Over)?;
        assert!(token > above, "{token} was to be above {above}");
        self.witness.told(lease, asked);
        Ok(())
    }

    async fn part_with(&mut self, lease: Lease) {
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
