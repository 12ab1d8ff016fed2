//! `lock-client list`.

use std::collections::HashSet;

use clap::Args;
use fence::ResourceName;
use lock_client::{Locks, redis::HeldNames};
use tokio::task::JoinSet;

use crate::{
    failure::{Failure, with_causes},
    lock_service::{LockService, Service},
    status::State,
    stdout::print,
};

pub(crate) const HELP: &str = "\
Each line is the state of one lock, as status prints it: name, token, holder, label, since when, \
remaining time, queue. Redis is read by SCAN, a page at a time, on all primaries of a Cluster and \
on all nodes of Redlock. A lock that is acquired or released meanwhile may be missing.

Example:
  lock-client list orders/ | jq -r '[.name, .label] | @tsv'";

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only locks whose names have this prefix
    #[arg(default_value = "")]
    prefix: String,

    #[command(flatten)]
    lock_service: LockService,
}

impl List {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let locks = self.lock_service.locks()?;
        let (mut seen, mut errors) = (HashSet::new(), Vec::new());
        let urls = match self.lock_service.service()? {
            Service::Redis(url) => vec![url],
            Service::Redlock(urls) => urls,
            other => return Err(Failure::Usage(format!("list is not for {}", other.name()))),
        };
        for url in &urls {
            let redis = self.lock_service.redis(url)?;
            match redis.held_names(&self.prefix).await {
                Ok(mut names) => self.print_pages(&locks, &mut names, &mut seen).await?,
                Err(error) => errors.push(error),
            }
        }
        // A majority of Redlock's nodes has every lock that is held.
        match errors.pop() {
            Some(error) if errors.len() + 1 > (urls.len() - 1) / 2 => {
                Err(Failure::Unavailable(with_causes(&error)))
            }
            _ => Ok(()),
        }
    }

    async fn print_pages(
        &self,
        locks: &Locks,
        names: &mut HeldNames,
        seen: &mut HashSet<ResourceName>,
    ) -> Result<(), Failure> {
        let unavailable = |error| Failure::Unavailable(with_causes(&error));
        while let Some(page) = names.next_page().await.map_err(unavailable)? {
            let new = page.into_iter().filter(|name| seen.insert(name.clone())).collect();
            print_held(locks, new).await?;
        }
        Ok(())
    }
}

/// Asks for the states of a page of locks at once, and prints those that are still held.
async fn print_held(locks: &Locks, names: Vec<ResourceName>) -> Result<(), Failure> {
    let mut states = JoinSet::new();
    for name in names {
        let locks = locks.clone();
        states.spawn(async move { (locks.status(&name).await, name) });
    }
    let mut states = states.join_all().await;
    states.sort_by(|(_, one), (_, other)| one.cmp(other));
    for (status, name) in states {
        let status = status?;
        if status.held.is_some() {
            print(&State::new(&name, &status))?;
        }
    }
    Ok(())
}
