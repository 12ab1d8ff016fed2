//! The tries that a server may still carry out, also when nobody waits for them any more.

use std::sync::Arc;

use fence::Holder;
use tokio::sync::watch;

/// The holders of the tries that may still be carried out. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Tries(Arc<watch::Sender<Vec<Holder>>>);

/// A try that may still be carried out, until this value is dropped.
pub(super) struct Trying {
    tries: Tries,
    holder: Holder,
}

impl Tries {
    pub(super) fn begin(&self, holder: &Holder) -> Trying {
        self.0.send_modify(|trying| trying.push(holder.clone()));
        Trying { tries: self.clone(), holder: holder.clone() }
    }

    pub(super) fn may_run(&self, holder: &Holder) -> bool {
        self.0.borrow().contains(holder)
    }

    pub(super) async fn ended(&self, holder: &Holder) {
        let mut trying = self.0.subscribe();
        let ended = trying.wait_for(|trying| !trying.contains(holder)).await;
        ended.expect("this value keeps the sender");
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        self.tries.0.send_modify(|trying| {
            if let Some(place) = trying.iter().position(|holder| *holder == self.holder) {
                trying.swap_remove(place);
            }
        });
    }
}
