//! What the clients of a crowd did, in sum.

use crate::record::EventKind;

/// What the clients of a crowd did, in sum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    bought: u64,
    sold_out: u64,
    rejected: u64,
    aborted: u64,
    released: u64,
}

impl Tally {
    /// Counts an event of one client.
    pub(crate) fn add(&mut self, event: &EventKind) {
        match event {
            EventKind::Bought { .. } => self.bought += 1,
            EventKind::StockRead { left: 0 } => self.sold_out += 1,
            EventKind::NotBought => self.rejected += 1,
            EventKind::Aborted => self.aborted += 1,
            EventKind::Released => self.released += 1,
            _ => {}
        }
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: Self) {
        self.bought += other.bought;
        self.sold_out += other.sold_out;
        self.rejected += other.rejected;
        self.aborted += other.aborted;
        self.released += other.released;
    }

    /// The event of a crowd that has bought.
    pub(crate) fn served(self, buyers: u64) -> EventKind {
        let Self { bought, sold_out, rejected, aborted, .. } = self;
        EventKind::Served { buyers, bought, sold_out, rejected, aborted }
    }

    /// The event of a crowd that has handed a lock from one to the next.
    pub(crate) fn handed_over(self) -> EventKind {
        EventKind::HandedOver { handovers: self.released }
    }
}
