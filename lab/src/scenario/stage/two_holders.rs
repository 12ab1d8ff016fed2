//! The course of every scenario in which two clients get one lock, of a lock service that has lost
//! something: client 1 has got the lock and read; the lock service forgets; client 2 gets the same lock,
//! and perhaps the same token, and reads; client 1 writes, and then client 2.

use std::{collections::HashMap, time::Duration};

use super::{
    Work, Write,
    driver::Client,
    lock::LONG_TTL,
    storage::{self, Kept},
    two_clients::{VALUE_1, VALUE_2, updates_lost},
};
use crate::{
    client::{naive_redlock, writer::Offer},
    record::{Actor, Checks, Event, Expected, Outcome, Recorder},
};
use testbed::StorageServer;

pub(crate) const RESOURCE: &str = "invoice-7";
/// What ends a client's having the lock.
pub(crate) const ENDS: [&str; 4] = ["released", "lease-lost", "lost", "lease-expired"];

/// One token was given twice and nobody noticed: client 2 has overwritten what it had not seen.
pub(crate) const OVERWRITTEN: [(&str, Expected); 6] = ending_with(2, [1, 0, 0, 1]);
/// One token was given twice: client 2 went on with a higher one, and client 1 lost its lease.
pub(crate) const HEALED: [(&str, Expected); 6] = ending_with(1, [1, 1, 1, 0]);
/// No token was given twice: client 1 lost its lease.
pub(crate) const KEPT_GROWING: [(&str, Expected); 6] = ending_with(1, [0, 0, 1, 0]);

/// The end in which the storage has accepted so many writes.
const fn ending_with(
    version: u64,
    [twice, conflicts, leases_lost, updates_lost]: [u64; 4],
) -> [(&'static str, Expected); 6] {
    [
        ("value", Expected::Text(VALUE_2)),
        ("version", Expected::Number(version)),
        ("tokens_given_twice", Expected::Number(twice)),
        ("holder_conflicts", Expected::Number(conflicts)),
        ("leases_lost", Expected::Number(leases_lost)),
        ("updates_lost", Expected::Number(updates_lost)),
    ]
}

/// What clients take the lock with, and what they write with under it.
#[derive(Clone, Copy)]
pub(crate) enum Clients {
    /// The command `lock-client put`.
    Put,
    /// The lab's own, with the library.
    Offering(Offer),
    /// A Redlock without tokens.
    Naive(naive_redlock::Way),
}

/// A storage server, and its clients.
pub(crate) struct TwoHolders {
    storage: StorageServer,
    clients: Clients,
    ttl: Duration,
}

impl TwoHolders {
    pub(crate) async fn start(checks: Checks, clients: Clients) -> anyhow::Result<Self> {
        Ok(Self { storage: storage::server(checks).await?, clients, ttl: LONG_TTL })
    }

    /// Has the clients get the lock for another time than a long one.
    pub(crate) fn for_a_ttl_of(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Starts a client, which asks for the lock at once.
    pub(crate) fn client(&self, actor: Actor, redis: &[String]) -> anyhow::Result<Client> {
        let value = if actor == Actor::Client1 { VALUE_1 } else { VALUE_2 };
        let (ttl, storage) = (self.ttl, self.storage.url());
        let write = Write { resource: RESOURCE, value, ttl, redis, storage };
        let work = match self.clients {
            Clients::Put => Work::Put { write },
            Clients::Offering(offer) => Work::Offer { offer, write },
            Clients::Naive(way) => Work::NaivePut { way, write },
        };
        Ok(Client::start(actor, work)?.among_holders(&ENDS))
    }

    /// Has a client get the lock, claim and read, so that it is about to write.
    pub(crate) async fn about_to_write(
        &self,
        actor: Actor,
        redis: &[String],
        recorder: &mut Recorder,
    ) -> anyhow::Result<Client> {
        let mut client = self.client(actor, redis)?;
        client.expect("acquired", recorder).await?;
        client.go_on_to("lease-checked", recorder).await?;
        Ok(client)
    }

    /// Has both write, client 1 first, and end. Returns how the world has ended.
    pub(crate) async fn write(
        &self,
        clients: [Client; 2],
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        for client in clients {
            finish(client, recorder).await?;
        }
        self.outcome(recorder).await
    }

    pub(crate) async fn kept(&self) -> anyhow::Result<Kept> {
        storage::kept(&self.storage, RESOURCE).await
    }

    /// What the storage has in the end, and what has happened until then.
    pub(crate) async fn outcome(&self, recorder: &Recorder) -> anyhow::Result<Outcome> {
        let kept = self.kept().await?;
        let count = |found: &dyn Fn(&&Event) -> bool| {
            u64::try_from(recorder.events().filter(found).count()).expect("there are few events")
        };
        let conflict = |event: &&Event| {
            event.actor == Actor::Storage && event.text("reason") == Some("holder-conflict")
        };
        Ok(Outcome::default()
            .with("value", kept.value)
            .with("token", kept.token)
            .with("version", kept.version)
            .with("tokens_given_twice", tokens_given_twice(recorder))
            .with("holder_conflicts", count(&conflict))
            .with("leases_lost", count(&|event| event.event == "lost"))
            .with("updates_lost", updates_lost(recorder.events())))
    }
}

/// Has a client write, and end.
pub(crate) async fn finish(mut client: Client, recorder: &mut Recorder) -> anyhow::Result<()> {
    client.go_on()?;
    let exit_code = client.written_or_refused(recorder).await?;
    client.finish_with(exit_code, recorder).await
}

/// How many tokens the lock service has given to more than one client.
fn tokens_given_twice(recorder: &Recorder) -> u64 {
    let mut given: HashMap<_, u32> = HashMap::new();
    for event in recorder.events().filter(|event| event.event == "acquired") {
        if let Some(token) = event.token {
            *given.entry(token).or_default() += 1;
        }
    }
    let twice = given.values().filter(|count| **count > 1).count();
    twice.try_into().expect("there are few clients")
}
