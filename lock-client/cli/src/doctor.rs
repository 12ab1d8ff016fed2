//! `lock-client doctor`: checks whether a lock service could lose a lock or a token.
//!
//! The probes of each system are in the crate `doctor`. What needs a lock is here: `locking` uses one,
//! and there is a module for each lock service.

mod databases;
mod etcd;
mod locking;
mod redis;
mod redlock;
mod zookeeper;

use clap::Args;
use doctor::Verdict;

use crate::{
    failure::Failure,
    lock_service::{LockService, Service},
    stdout::{print, print_bytes},
};

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let locks = lock_service.locks()?;
        let report = match lock_service.service()? {
            Service::Redis(url) => redis::examine(url, &locks).await?,
            Service::Redlock(urls) => {
                let operator = lock_service.operator()?;
                redlock::examine(&urls, &locks, &operator).await?
            }
            Service::Etcd(url) => etcd::examine(&lock_service.etcd(url)?, &locks).await?,
            Service::ZooKeeper(url) => {
                let zookeeper = lock_service.zookeeper(url)?;
                zookeeper::examine(&zookeeper, &locks).await?
            }
            service @ (Service::Postgres(_) | Service::MariaDb(_) | Service::Sqlite(_)) => {
                databases::examine(&service, &locks).await?
            }
        };
        if self.json {
            print(&report)?;
        } else {
            print_bytes(report.to_string().as_bytes())?;
        }
        match report.verdict() {
            Verdict::Ok | Verdict::Warning => Ok(()),
            verdict => Err(Failure::Reported(verdict.exit_code())),
        }
    }
}
