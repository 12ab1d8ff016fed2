//! The course of every scenario in which a lock service lost its counter: client 1 has got the lock,
//! claimed and read; the lock service forgets; client 2 gets the same lock, and perhaps the same
//! token, and reads; client 1 writes, and then client 2.

use std::collections::HashMap;

use super::{
    Work,
    driver::Client,
    storage::kept,
    two_clients::{VALUE_1, VALUE_2, updates_lost},
};
use crate::{
    client::writer::Offer,
    record::{Actor, Event, Expected, Outcome, Recorder},
    servers::StorageServer,
};

pub(crate) const RESOURCE: &str = "invoice-7";

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

/// A storage server, and what the clients offer to it.
pub(crate) struct TwoHolders {
    storage: StorageServer,
    offer: Offer,
}

impl TwoHolders {
    pub(crate) async fn start(offer: Offer) -> anyhow::Result<Self> {
        Ok(Self { storage: StorageServer::start(&[]).await?, offer })
    }

    /// Has a client get the lock at a Redis, claim and read, so that it is about to write.
    pub(crate) async fn about_to_write(
        &self,
        actor: Actor,
        redis: &str,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Client> {
        let value = if actor == Actor::Client1 { VALUE_1 } else { VALUE_2 };
        let (offer, storage) = (self.offer, self.storage.url());
        let work = Work::Write { resource: RESOURCE, value, offer, redis, storage };
        let mut client = Client::start(actor, work)?;
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
        for mut client in clients {
            client.go_on()?;
            let exit_code = client.written_or_refused(recorder).await?;
            client.finish_with(exit_code, recorder).await?;
        }
        let kept = kept(&self.storage, RESOURCE).await?;
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

/// How many tokens the lock service has given to more than one client.
fn tokens_given_twice(recorder: &Recorder) -> u64 {
    let mut given: HashMap<_, u32> = HashMap::new();
    for event in recorder.events().filter(|event| event.event == "acquired") {
        *given.entry(event.token).or_default() += 1;
    }
    let twice = given.values().filter(|count| **count > 1).count();
    twice.try_into().expect("there are few clients")
}
