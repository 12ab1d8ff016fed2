//! The course of every scenario in which one client overtakes another: something holds client 1 back
//! past its lease, just before its write; client 2 gets the lock, and takes some steps; client 1 goes
//! on; client 2 goes on.

use anyhow::ensure;
use fence::Token;

use super::{
    driver::{Client, OVERWRITES_UNSEEN},
    lock::Lock,
};
use crate::record::{Actor, Event, Expected, Fact, Outcome, Recorder};
use testbed::Proxy;

/// The steps that client 2 takes, after it got the lock.
#[derive(Clone, Copy)]
pub(crate) struct Course {
    pub(crate) before_client_1_goes_on: &'static [&'static str],
    pub(crate) afterwards: &'static [&'static str],
}

/// Client 2 has finished before client 1 goes on.
pub(crate) const OVERTAKEN: Course = Course {
    before_client_1_goes_on: &["read", "lease-checked", "written", "released"],
    afterwards: &[],
};

/// What the clients write.
pub(crate) const VALUE_1: &str = "by client 1";
pub(crate) const VALUE_2: &str = "by client 2";

/// The end with this value, written with this token, and with so many stale writes accepted, stale
/// writes refused, and updates lost.
pub(crate) const fn ending_with(
    value: &'static str,
    token: u64,
    [accepted, refused, lost]: [u64; 3],
) -> [(&'static str, Expected); 5] {
    [
        ("value", Expected::Text(value)),
        ("token", Expected::Number(token)),
        ("stale_writes_accepted", Expected::Number(accepted)),
        ("stale_writes_refused", Expected::Number(refused)),
        ("updates_lost", Expected::Number(lost)),
    ]
}

/// What holds client 1's write back.
#[derive(Clone, Copy)]
pub(crate) enum HeldBack<'a> {
    /// It is stopped just before it writes.
    ByPause,
    /// It writes, and its write is long on its way.
    ByNetwork(&'a Proxy),
}

/// Plays it, with clients as they are made here.
pub(crate) async fn play(
    course: Course,
    held_back: HeldBack<'_>,
    lock: &Lock,
    client: impl Fn(Actor) -> anyhow::Result<Client>,
    recorder: &mut Recorder,
) -> anyhow::Result<()> {
    let mut client_1 = client(Actor::Client1)?;
    let token_1 = client_1.expect("acquired", recorder).await?;
    for step in ["read", "lease-checked"] {
        client_1.take(step, recorder).await?;
    }
    let held = match held_back {
        HeldBack::ByPause => {
            client_1.pause(recorder).await?;
            // It is told to write, and would, if it were not stopped.
            client_1.go_on()?;
            None
        }
        HeldBack::ByNetwork(network) => {
            let hold = network.hold("PUT ");
            client_1.go_on()?;
            let held = hold.caught().await?;
            recorder.note(Actor::Network, "request-held", token_1);
            Some(held)
        }
    };
    lock.runs_out(Actor::Client1, token_1, recorder).await?;

    let mut client_2 = client(Actor::Client2)?;
    let token_2 = client_2.expect("acquired", recorder).await?;
    let tokens = [token_1, token_2].map(|token| token.map(Token::as_u64));
    ensure!(tokens == [Some(33), Some(34)], "the tokens were to be 33 and 34, not {tokens:?}");
    for step in course.before_client_1_goes_on {
        client_2.take(step, recorder).await?;
    }

    match held {
        None => client_1.resume(recorder)?,
        Some(held) => {
            recorder.note(Actor::Network, "request-delivered", token_1);
            held.deliver();
        }
    }
    let exit_code_1 = client_1.written_or_refused(recorder).await?;
    client_1.take("lease-lost", recorder).await?;
    client_1.ends_with(exit_code_1).await?;

    for step in course.afterwards {
        client_2.take(step, recorder).await?;
    }
    client_2.ends_with(0).await
}

/// What the events come to, the storage having this value in the end, written with this token.
pub(crate) fn outcome<'a>(
    events: impl Iterator<Item = &'a Event> + Clone,
    value: String,
    token: impl Into<Fact>,
) -> Outcome {
    let count = |what: &str| -> u64 {
        let told = events.clone().filter(|event| event.actor == Actor::Storage);
        told.map(|event| u64::from(event.event == what)).sum()
    };
    Outcome::default()
        .with("value", value)
        .with("token", token)
        .with("stale_writes_accepted", count("accepted-stale-write"))
        .with("stale_writes_refused", count("refused"))
        .with("updates_lost", updates_lost(events.clone()))
}

/// How many writes were overwritten by a client that had read before them.
pub(crate) fn updates_lost<'a>(events: impl Iterator<Item = &'a Event>) -> u64 {
    events.filter_map(|event| event.number(OVERWRITES_UNSEEN)).sum()
}
