//! The task that makes the kept connection again when it is lost, and closes the idle ones.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use sqlx::{Connection, Database, Encode, Executor, Type};
use tokio::{sync::Notify, time::timeout};

use super::{
    answer::Columns,
    pool::{IDLE, Pool, Shared},
    slot::Slot,
};
use crate::retry::pauses;

/// How long another connection than the kept one may be idle until it is closed.
const LONGEST_IDLE: Duration = Duration::from_secs(10);
/// The longest pause until a lost connection is made again.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Keeps a connection as long as locks are held. Ends when there is nothing to keep and to close.
pub(super) async fn keep<D: Database>(client: Weak<Shared<D>>, lost: Arc<Notify>)
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
    D::Row: Columns,
{
    let mut backoff = pauses(LONGEST_PAUSE);
    // So the loss of an idle connection is noticed, and neither a proxy nor the server takes it for idle.
    let mut pause = IDLE;
    loop {
        let _lost_or_not = timeout(pause, lost.notified()).await;
        let Some(shared) = client.upgrade() else { return };
        let pool = Pool { shared };
        pause = match pool.check_the_kept_one().await {
            Ok(()) => {
                backoff = pauses(LONGEST_PAUSE);
                IDLE
            }
            Err(error) => {
                tracing::debug!(%error, "the connection for held locks can't be made");
                backoff.next().expect("the pauses never end")
            }
        };
        pool.close_idle_ones().await;
        let mut slots = pool.slots();
        if slots.held.is_empty() && slots.connected() <= 1 {
            slots.keeper = None;
            return;
        }
    }
}

impl<D: Database> Pool<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'t> String: Encode<'t, D> + Type<D>,
    D::Row: Columns,
{
    /// Checks the kept connection if it is idle, and makes it again if it is lost.
    async fn check_the_kept_one(&self) -> Result<(), sqlx::Error> {
        let kept = {
            let mut slots = self.slots();
            if slots.held.is_empty() {
                return Ok(());
            }
            // Another connection, if there is one, is kept instead of one that is lost.
            let is_ready = |slot: &Arc<Slot<D>>| slot.is_connected() && !slot.is_trying();
            if !slots.all[0].is_connected()
                && let Some(place) = slots.all.iter().position(is_ready)
            {
                slots.all.swap(0, place);
            }
            slots.all[0].clone()
        };
        // One that is busy is used, or being made.
        let Some(mut turn) = kept.idle_turn() else { return Ok(()) };
        self.connect(&mut turn).await
    }

    /// Closes the connections that were idle for long, except the first one.
    async fn close_idle_ones(&self) {
        let others = {
            let mut slots = self.slots();
            // Without a first one, another remains.
            if !slots.all[0].is_connected()
                && let Some(place) = slots.all.iter().position(|slot| slot.is_connected())
            {
                slots.all.swap(0, place);
            }
            slots.all[1..].to_vec()
        };
        for slot in others {
            let Some(mut turn) = slot.idle_turn() else { continue };
            if turn.is_unused_for(LONGEST_IDLE)
                && let Some(connection) = turn.take()
            {
                turn.lose();
                drop(turn);
                let _ = timeout(self.answer_timeout(), connection.close()).await;
            }
        }
    }
}
