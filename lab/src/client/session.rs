//! A client that is connected, and carries out commands.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::sleep;

use super::{
    command::Command,
    lock::Lock,
    report::Reports,
    sale::Sale,
    server::Server,
    setup::{Setup, StoreSetup},
    table::Table,
    tally::Tally,
    tap::Taps,
};
use crate::record::EventKind;

pub(super) struct Session {
    lock: Lock,
    store: Store,
    reports: Reports,
}

/// What the client reads and writes.
enum Store {
    Server(Server),
    Table(Table),
    Sale(Sale),
    None,
}

impl Session {
    /// Connects a client, whose reports are printed with what went over the wire.
    pub(super) async fn connect(setup: &Setup) -> anyhow::Result<Self> {
        let taps = Taps::default();
        let setup = taps.tapped(setup).await?;
        Self::new(Lock::connect(&setup).await?, &setup, Reports::Printed(taps)).await
    }

    /// A client with a lock that is connected already.
    pub(super) async fn new(lock: Lock, setup: &Setup, reports: Reports) -> anyhow::Result<Self> {
        let resource = &setup.resource;
        let store = match &setup.store {
            StoreSetup::Server { url, offer } => Store::Server(Server::new(url, resource, *offer)?),
            StoreSetup::Table { url, guard } => {
                Store::Table(Table::connect(url, resource, *guard).await?)
            }
            StoreSetup::Sale { url, guard } => {
                Store::Sale(Sale::connect(url, resource, *guard, &setup.name).await?)
            }
            StoreSetup::None => Store::None,
        };
        Ok(Self { lock, store, reports })
    }

    /// Carries out a command, and reports what it did.
    pub(super) async fn carry_out(&mut self, command: Command) -> anyhow::Result<()> {
        let Self { lock, store, reports } = self;
        match command {
            Command::Acquire(terms) => lock.acquire(terms, reports).await?,
            Command::SetWithoutExpiry(terms) => {
                lock.key()?.set_without_expiry(terms, reports).await?;
            }
            Command::SetExpiry { ttl_ms } => reports.add(lock.key()?.set_expiry(ttl_ms).await?),
            Command::CheckLease => reports.add(lock.check()?),
            Command::Work { for_ms } => {
                sleep(Duration::from_millis(for_ms)).await;
                reports.add(EventKind::Worked);
            }
            Command::Compare => reports.add(lock.key()?.compare().await?),
            Command::Delete => reports.add(lock.key()?.delete().await?),
            Command::Release => reports.add(lock.release().await?),
            Command::Read => store.read(lock, reports).await?,
            Command::Write { value } => store.write(value, lock, reports).await?,
            Command::Sell { count } => {
                let rest = store.table()?.rest(count)?;
                store.write(rest, lock, reports).await?;
            }
            Command::ReadStock => store.sale()?.read(lock, reports).await?,
            Command::TakeItem => store.sale()?.take_item(lock, reports).await?,
        }
        Ok(())
    }

    /// What the client did, if that is counted.
    pub(super) fn tally(&self) -> Tally {
        match &self.reports {
            Reports::Counted(tally) => *tally,
            Reports::Printed(_) => Tally::default(),
        }
    }
}

impl Store {
    async fn read(&mut self, lock: &Lock, reports: &mut Reports) -> anyhow::Result<()> {
        match self {
            Self::Server(server) => server.read(lock, reports).await,
            Self::Table(table) => table.read(lock, reports).await,
            Self::Sale(_) | Self::None => bail!("there is nothing to read"),
        }
    }

    async fn write(
        &mut self,
        value: String,
        lock: &Lock,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        match self {
            Self::Server(server) => server.write(value, lock, reports).await,
            Self::Table(table) => table.write(value, lock, reports).await,
            Self::Sale(_) | Self::None => bail!("there is nothing to write"),
        }
    }

    fn table(&mut self) -> anyhow::Result<&mut Table> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
        .context("there is no table")
    }

    fn sale(&mut self) -> anyhow::Result<&mut Sale> {
        match self {
            Self::Sale(sale) => Some(sale),
            _ => None,
        }
        .context("there is no sale")
    }
}
