//! `lock-client doctor`: checks whether a lock service could lose a token.
//!
//! Each check is a module. It looks at `facts` or asks over a `connection`, and returns a
//! `finding`; `report` prints the findings. `one_server` runs all checks on one Redis, and
//! `cluster` on each node of a Redlock cluster. The other lock services have a module each;
//! `database` has what those of SQL share.

mod clock;
mod cluster;
mod connection;
mod database;
mod etcd;
mod eviction;
mod facts;
mod finding;
mod locking;
mod mariadb;
mod membership;
mod one_server;
mod persistence;
mod postgres;
mod proxy;
mod replication;
mod report;
mod sqlite;
mod version;
mod waking;
mod zookeeper;

use clap::Args;

use self::{finding::Severity, report::Print};
use crate::{
    failure::Failure,
    lock_service::{LockService, Service},
};

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    #[command(flatten)]
    lock_service: LockService,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let locks = self.lock_service.locks()?;
        let verdict = match self.lock_service.service()? {
            Service::Redis(url) => self.print(&one_server::examine(url, &locks).await?)?,
            Service::Redlock(urls) => {
                let operator = self.lock_service.operator()?;
                self.print(&cluster::examine(&urls, &locks, &operator).await?)?
            }
            Service::Etcd(url) => {
                let etcd = self.lock_service.etcd(url)?;
                self.print(&etcd::examine(&etcd, &locks).await?)?
            }
            Service::ZooKeeper(url) => {
                let zookeeper = self.lock_service.zookeeper(url)?;
                self.print(&zookeeper::examine(&zookeeper, &locks).await?)?
            }
            Service::Postgres(url) => self.print(&postgres::examine(url, &locks).await?)?,
            Service::MariaDb(url) => self.print(&mariadb::examine(url, &locks).await?)?,
            Service::Sqlite(url) => self.print(&sqlite::examine(url, &locks).await?)?,
        };
        match verdict {
            Severity::Ok | Severity::Warning => Ok(()),
            Severity::Unusable => {
                Err(Failure::Unavailable("this lock service can't be used".to_owned()))
            }
            Severity::Unseen => {
                Err(Failure::TokensAtRisk("could not check whether a token can be lost"))
            }
            Severity::TokenLoss => Err(Failure::TokensAtRisk("a token can be lost")),
        }
    }

    fn print(&self, report: &impl Print) -> Result<Severity, Failure> {
        if self.json {
            report.print_json()?
        } else {
            report.print_text()?
        }
        Ok(report.verdict())
    }
}
