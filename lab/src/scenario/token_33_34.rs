//! The classic (Kleppmann, "How to do distributed locking", 2016): a client is paused past its
//! lease, another one takes the lock and writes, and the first wakes up and writes too.

use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use fence::{ResourceName, Token};
use lock_client::{Locks, backend, storage::Storage};
use tokio::time::sleep;

use super::{
    Scenario,
    client::{Client, Put},
};
use crate::{
    record::{Actor, Outcome, Outcomes, Recorder, RunRecord, World},
    servers::{Redis, StorageServer},
};

const RESOURCE: &str = "invoice-7";
const TTL: &str = "2s";
const VALUE_1: &str = "by client 1";
const VALUE_2: &str = "by client 2";
/// The storage refused the token: an exit code of `lock-client`.
const REFUSED: i32 = 80;

#[derive(Debug)]
pub(super) struct Token33And34;

/// How the two clients ended.
#[derive(Debug, PartialEq)]
struct Played {
    tokens: [Option<Token>; 2],
    exit_codes: [Option<i32>; 2],
    outcome: Outcome,
}

#[async_trait(?Send)]
impl Scenario for Token33And34 {
    fn name(&self) -> &'static str {
        "token-33-34"
    }

    fn claim(&self) -> &'static str {
        "A client that was paused past its lease overwrites newer data; a storage that checks tokens \
         refuses it."
    }

    async fn run(&self, mut recorder: Recorder) -> anyhow::Result<RunRecord> {
        let unfenced = play(World::Unfenced, &mut recorder).await?;
        let fenced = play(World::Fenced, &mut recorder).await?;

        let tokens = [33, 34].map(|token| Token::new(token).ok());
        let outcome = |value: &str, token, stale_writes_accepted, stale_writes_refused| Outcome {
            value: Some(value.to_owned()),
            token,
            stale_writes_accepted,
            stale_writes_refused,
        };
        let overwritten = Played {
            tokens,
            exit_codes: [Some(0), Some(0)],
            outcome: outcome(VALUE_1, tokens[0], 1, 0),
        };
        let protected = Played {
            tokens,
            exit_codes: [Some(REFUSED), Some(0)],
            outcome: outcome(VALUE_2, tokens[1], 0, 1),
        };
        Ok(RunRecord {
            scenario: self.name(),
            holds: unfenced == overwritten && fenced == protected,
            events: recorder.into_events(),
            outcome: Outcomes { fenced: fenced.outcome, unfenced: unfenced.outcome },
        })
    }
}

async fn play(world: World, recorder: &mut Recorder) -> anyhow::Result<Played> {
    let redis = Redis::start().await?;
    let enforcement = match world {
        World::Fenced => "enforce",
        World::Unfenced => "off",
    };
    let storage = StorageServer::start(&["--enforcement", enforcement]).await?;
    redis.set(&format!("fenced:{{{RESOURCE}}}:token"), "32").await?;
    recorder.note(world, Actor::Redis, "counter-preset", Token::new(32).ok());

    let client = |actor, value| {
        let (redis, storage) = (&redis.url(), storage.url());
        Client::start(world, actor, Put { resource: RESOURCE, value, ttl: TTL, redis, storage })
    };

    let mut client_1 = client(Actor::Client1, VALUE_1)?;
    let token_1 = client_1.expect("acquired", recorder).await?;
    client_1.go_on()?;
    client_1.expect("read", recorder).await?;
    client_1.go_on()?;
    client_1.expect("lease-checked", recorder).await?;
    client_1.pause(recorder).await?;
    // It is told to write, and would, if it were not stopped.
    client_1.go_on()?;

    lease_runs_out(&redis).await?;
    recorder.note(world, Actor::Redis, "lease-expired", token_1);

    let mut client_2 = client(Actor::Client2, VALUE_2)?;
    let token_2 = client_2.expect("acquired", recorder).await?;
    for step in ["read", "lease-checked", "written"] {
        client_2.go_on()?;
        client_2.expect(step, recorder).await?;
    }
    client_2.go_on()?;
    client_2.expect("released", recorder).await?;
    let exit_code_2 = client_2.exit_code().await?;

    client_1.resume(recorder)?;
    client_1.step(recorder).await?;
    client_1.go_on()?;
    client_1.expect("lease-lost", recorder).await?;
    let exit_code_1 = client_1.exit_code().await?;

    let end = Storage::new(storage.url())?.read(&RESOURCE.parse()?).await?;
    let (value, token) = match end {
        Some(value) => (Some(String::from_utf8(value.bytes.into())?), value.token),
        None => (None, None),
    };
    Ok(Played {
        tokens: [token_1, token_2],
        exit_codes: [exit_code_1, exit_code_2],
        outcome: Outcome::of(recorder.events_of(world), value, token),
    })
}

/// Waits until Redis has let the lock go.
async fn lease_runs_out(redis: &Redis) -> anyhow::Result<()> {
    let locks = Locks::new(backend::Redis::open(&redis.url())?);
    let name: ResourceName = RESOURCE.parse()?;
    let gone = async {
        while locks.status(&name).await?.held.is_some() {
            sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.context("the lease did not end")?
}
