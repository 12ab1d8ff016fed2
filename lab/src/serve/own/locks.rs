//! The locks that are held in a lock service of your own.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fence::{ResourceName, Token};
use futures_util::{StreamExt, stream};
use lock_client::{
    LockServiceError,
    backend::{BackendError, Status},
};
use lock_client_cli::HeldLocks;
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::timeout};

use super::with_causes;

/// The most locks that are shown.
const MOST_SHOWN: usize = 200;
/// How many are asked for at once.
const AT_ONCE: usize = 16;
/// How long all answers together may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// For so long, an answer is good for further pages that ask.
const FRESH_FOR: Duration = Duration::from_millis(500);

/// A lock service whose locks are shown.
#[derive(Debug)]
pub(super) struct OwnLocks {
    held: HeldLocks,
    /// The last answer, and when it came. One page at a time asks the lock service.
    last: Mutex<Option<(Instant, Arc<Value>)>>,
}

impl OwnLocks {
    pub(super) fn open(urls: Vec<String>) -> anyhow::Result<Self> {
        Ok(Self { held: HeldLocks::open(urls)?, last: Mutex::default() })
    }

    pub(super) fn address(&self) -> String {
        self.held.locks().address()
    }

    /// The locks that are held, in the order of their names, or why they can't be read.
    pub(super) async fn read(&self) -> Arc<Value> {
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < FRESH_FOR
        {
            return answer.clone();
        }
        let answer = match timeout(ANSWER_TIMEOUT, self.ask()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(reason)) => json!({"error": reason}),
            Err(_) => json!({"error": format!("{} does not answer", self.address())}),
        };
        let answer = Arc::new(answer);
        *last = Some((Instant::now(), answer.clone()));
        answer
    }

    async fn ask(&self) -> Result<Value, String> {
        let mut names = Vec::new();
        let mut pages = self.held.names("");
        while names.len() <= MOST_SHOWN
            && let Some(page) = pages.next().await
        {
            names.extend(page.map_err(with_causes)?);
        }
        names.sort_unstable();
        let has_more = names.len() > MOST_SHOWN;
        names.truncate(MOST_SHOWN);
        let locks = self.held.locks();
        let status = |name: ResourceName| {
            let locks = locks.clone();
            async move { (locks.status(&name).await, name) }
        };
        let mut states = stream::iter(names).map(status).buffered(AT_ONCE);
        let (mut shown, mut unreadable) = (Vec::new(), 0);
        while let Some((status, name)) = states.next().await {
            match status {
                Ok(status) => shown.extend(state(&name, &status)),
                Err(LockServiceError { source: BackendError::Rejected(_), .. }) => unreadable += 1,
                Err(error) => return Err(with_causes(error)),
            }
        }
        Ok(json!({"locks": shown, "has_more": has_more, "unreadable": unreadable}))
    }

    /// Breaks a lock, if it has this token. Returns whether it had.
    pub(super) async fn break_lock(
        &self,
        name: &ResourceName,
        token: Token,
    ) -> Result<bool, String> {
        let broken = self.held.locks().break_lock(name, token).await;
        *self.last.lock().await = None;
        broken.map_err(with_causes)
    }
}

/// A lock as it is shown; `None` if it was released meanwhile. Nobody sees its holder whole.
fn state(name: &ResourceName, status: &Status) -> Option<Value> {
    let held = status.held.as_ref()?;
    Some(json!({
        "name": name.as_str(),
        "token": held.token.as_u64(),
        "holder": held.ownership.holder.redacted(),
        "label": held.label,
        "remaining_ms": held.remaining.map(|remaining| remaining.as_millis() as u64),
        "queued": status.queued,
    }))
}
