//! Many clients in one process.

use futures_util::future::try_join_all;
use testbed::open_files;

use super::{
    command::Command,
    lock::Lock,
    report::Reports,
    session::Session,
    setup::{Connections, CrowdSetup, Setup, StoreSetup},
    tally::Tally,
};
use crate::record::EventKind;

/// Has every client of a crowd carry out these commands, all clients at once. Returns the event
/// that sums up what they did.
pub(super) async fn run(
    crowd: CrowdSetup,
    setup: &Setup,
    commands: &[Command],
) -> anyhow::Result<EventKind> {
    open_files::raise_limit();
    let shared = match crowd.connections {
        Connections::Shared => Some(Lock::connect(setup).await?),
        Connections::Own => None,
    };
    let mut sessions = Vec::new();
    for number in crowd.first..crowd.first + crowd.size {
        let setup = Setup { name: format!("client-{number}"), ..setup.clone() };
        let lock = match &shared {
            Some(Lock::Lease(lock)) => Lock::Lease(lock.sharing_connections()),
            _ => Lock::connect(&setup).await?,
        };
        let counted = Reports::Counted(Tally::default());
        sessions.push(Session::new(lock, &setup, counted).await?);
    }
    // None of them begins before all are connected.
    let tallies = sessions.into_iter().map(async |mut session| {
        for command in commands {
            session.carry_out(command.clone()).await?;
        }
        anyhow::Ok(session.tally())
    });
    let mut sum = Tally::default();
    for tally in try_join_all(tallies).await? {
        sum.merge(tally);
    }
    Ok(match setup.store {
        StoreSetup::Sale { .. } => sum.served(crowd.size),
        _ => sum.handed_over(),
    })
}
