//! `lock-client doctor`.

mod clock;
mod cluster;
mod connection;
mod eviction;
mod facts;
mod finding;
mod locking;
mod membership;
mod persistence;
mod replication;
mod report;
mod version;
mod waking;

use clap::Args;
use redis::RedisError;

use self::{
    connection::Server,
    facts::Facts,
    finding::Severity,
    report::{Report, Tell},
};
use super::{Failure, LockService};
use lock_client::Locks;

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
        let verdict = match &self.lock_service.urls()[..] {
            [url] => {
                let mut server = connection::connect(url).await?;
                let examined = examine(&mut server, &locks).await;
                examined.map_err(connection::unavailable)?.print(self.json)?
            }
            urls => {
                let operator = self.lock_service.operator()?;
                cluster::examine(urls, &locks, &operator).await?.print(self.json)?
            }
        };
        match verdict {
            Severity::Ok | Severity::Warning => Ok(()),
            Severity::Unusable => Err(Failure::Unavailable("no locks can be kept here".to_owned())),
            Severity::Unseen => Err(Failure::TokenUnseen),
            Severity::TokenLoss => Err(Failure::TokenAtRisk),
        }
    }
}

/// Runs all checks.
///
/// # Errors
/// If the connection is lost. What the server refuses to tell is a finding.
async fn examine(server: &mut Server, locks: &Locks) -> Result<Report, RedisError> {
    let user = server.user();
    let facts = Facts::of(&mut server.commands, &user).await?;
    let mut findings = vec![version::version(&facts)];
    findings.extend(membership::alone(&mut server.commands).await?);
    findings.extend(persistence::persistence(&facts));
    findings.push(eviction::eviction(&facts));
    findings.extend(replication::replication(&mut server.commands, &facts).await?);
    findings.push(clock::clock(&mut server.commands).await?);
    let name = locking::throw_away_name(&mut server.commands).await?;
    findings.push(locking::locking(&mut server.commands, locks, &name, facts.user()).await?);
    let cure = locking::permissions(facts.user());
    findings.push(waking::waking(server, &name, facts.user(), cure).await?);
    Ok(Report::new(&facts, findings))
}
