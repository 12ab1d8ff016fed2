//! Mutexes that are held for a moment, and never across an await.

use std::sync::{Mutex, MutexGuard};

pub(crate) trait Locked<T> {
    fn locked(&self) -> MutexGuard<'_, T>;
}

impl<T> Locked<T> for Mutex<T> {
    fn locked(&self) -> MutexGuard<'_, T> {
        self.lock().expect("nothing panics while it holds this")
    }
}
