//! Whether conditions and writes are one step, when several clients write at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use fence::{Holder, object_store::Failure};
use futures_util::future::join_all;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, UpdateVersion, path::Path};
use tokio::{task::JoinSet, time::sleep};

use super::{
    fit_if,
    site::{Site, is_rejection, put},
    unfit,
};
use crate::check::Check;

const CLIENTS: usize = 8;
/// How long a client waits after a read that failed.
const PAUSE: Duration = Duration::from_millis(20);
const CREATION: &str = "two clients that create one object both believe that the fence is theirs";
const REPLACEMENT: &str = "a write that was acknowledged is lost, and with it its fence";

/// Lets clients create an object at the same moment, again and again: only one of them may succeed.
pub(super) async fn check_creation(site: &Site, until: Instant) -> anyhow::Result<Check> {
    let clients: Vec<_> = (0..CLIENTS).map(|_| site.another_client()).collect::<Result<_, _>>()?;
    let (mut rounds, mut with_one, mut with_several) = (0, 0, 0);
    while rounds == 0 || Instant::now() < until {
        let path = site.path(&format!("created-{rounds}"));
        let creations = clients.iter().enumerate().map(|(number, client)| {
            let (path, content) = (&path, number.to_string());
            async move { put(&**client, path, &content, PutMode::Create).await }
        });
        let successes = join_all(creations).await.iter().filter(|outcome| outcome.is_ok()).count();
        with_one += usize::from(successes == 1);
        with_several += usize::from(successes > 1);
        rounds += 1;
    }
    let found = format!(
        "of {rounds} objects that {CLIENTS} clients created, one succeeded with {with_one}, and several \
         with {with_several}"
    );
    // A store that rejects everything shows nothing.
    Ok(if with_several == 0 && 2 * with_one <= rounds {
        too_few("atomic_create", found)
    } else {
        fit_if(with_several == 0, "atomic_create", found, CREATION)
    })
}

/// Lets clients increment a counter, each time on the condition that it still is as it was read.
pub(super) async fn check_replacement(site: &Site, until: Instant) -> anyhow::Result<Check> {
    let path = site.path("counter");
    put(&*site.store, &path, "0", PutMode::Create).await?;
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(increment(site.another_client()?, path.clone(), until));
    }
    let mut history = History::default();
    while let Some(own) = clients.join_next().await {
        let own = own?;
        history.acknowledged.extend(own.acknowledged);
        history.unknown += own.unknown;
    }
    Ok(history.check(parse(&site.read(&path).await?)?))
}

/// What clients did to the counter.
#[derive(Debug, Default)]
struct History {
    /// The value that each acknowledged increment has written.
    acknowledged: Vec<u64>,
    /// How many increments may have been applied, or may still be.
    unknown: u64,
}

async fn increment(store: Arc<dyn ObjectStore>, path: Path, until: Instant) -> History {
    let mut history = History::default();
    while Instant::now() < until {
        let Ok((value, condition)) = read(&*store, &path).await else {
            sleep(PAUSE).await;
            continue;
        };
        // No two contents are equal, so no two ETags are.
        let content = format!("{} {}", value + 1, Holder::random().as_str());
        match put(&*store, &path, &content, PutMode::Update(condition)).await {
            Ok(_) => history.acknowledged.push(value + 1),
            Err(error) if is_rejection(&error) || Failure::from_error(&error).is_rejection() => {}
            Err(_) => history.unknown += 1,
        }
    }
    history
}

async fn read(store: &dyn ObjectStore, path: &Path) -> anyhow::Result<(u64, UpdateVersion)> {
    let answer = store.get(path).await?;
    let (e_tag, version) = (answer.meta.e_tag.clone(), answer.meta.version.clone());
    let content = String::from_utf8(answer.bytes().await?.to_vec())?;
    Ok((parse(&content)?, UpdateVersion { e_tag, version }))
}

fn parse(content: &str) -> anyhow::Result<u64> {
    let number = content.split(' ').next().and_then(|number| number.parse().ok());
    number.context("the counter's object has no number")
}

impl History {
    fn check(mut self, last: u64) -> Check {
        const NAME: &str = "atomic_replace";
        self.acknowledged.sort_unstable();
        let twice = self.acknowledged.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let beyond = self.acknowledged.iter().filter(|&&value| value > last).count();
        let (acknowledged, lost) = (self.acknowledged.len(), twice + beyond);
        let surplus = last.saturating_sub(acknowledged as u64 + self.unknown);
        let found = format!(
            "{CLIENTS} clients, {acknowledged} increments acknowledged, {lost} lost, {} unknown",
            self.unknown
        );
        if lost > 0 {
            unfit(NAME, found, REPLACEMENT)
        } else if surplus > 0 {
            unfit(NAME, format!("{found}, {surplus} rejected and applied"), REPLACEMENT)
        } else if acknowledged < CLIENTS {
            // A store that rejects everything loses nothing, and shows nothing.
            too_few(NAME, found)
        } else {
            Check::ok(NAME, found)
        }
    }
}

/// Too few writes succeeded.
fn too_few(name: &'static str, found: String) -> Check {
    Check::unseen(
        name,
        format!("{found}: too few to tell"),
        "examine for longer, or when the store is idle",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Verdict;

    #[test]
    fn lost_and_rejected_increments_are_found_in_a_history() {
        let check = |acknowledged: &[u64], unknown, last| {
            History { acknowledged: acknowledged.to_vec(), unknown }.check(last).verdict
        };
        let all: Vec<_> = (1..=20).rev().collect();
        assert_eq!(check(&all, 0, 20), Verdict::Ok);
        let forked = [&all[..], &[7]].concat();
        assert_eq!(check(&forked, 0, 20), Verdict::UnfitForFence);
        assert_eq!(check(&all, 0, 19), Verdict::UnfitForFence, "the last one is lost");
        assert_eq!(check(&all[1..], 0, 20), Verdict::UnfitForFence, "a rejected one was applied");
        assert_eq!(check(&all[1..], 1, 20), Verdict::Ok);
        assert_eq!(check(&all[15..], 0, 5), Verdict::Unseen, "too few");
    }
}
