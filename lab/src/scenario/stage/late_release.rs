//! The course of every scenario in which a client that was paused past its lease gives back a lock that
//! is another's by then, and a third client tries to get it.

use std::time::Duration;

use super::{lock::LONG_TTL, workplace::Workplace};
use crate::{
    client::worker::Way,
    record::{Actor, Expected, Outcome, Recorder},
};

const TTL: Duration = Duration::from_secs(1);

/// Client 1 has deleted client 2's lock, and client 3 got in beside client 2.
pub(crate) const ANOTHERS_DELETED: [(&str, Expected); 2] = ending_with(1, 2);
/// Client 2 has kept its lock, and was alone.
pub(crate) const NONE_DELETED: [(&str, Expected); 2] = ending_with(0, 1);

const fn ending_with(deleted: u64, holders: u64) -> [(&'static str, Expected); 2] {
    [
        ("locks_of_others_deleted", Expected::Number(deleted)),
        ("holders_at_once", Expected::Number(holders)),
    ]
}

pub(crate) const LANES: [Actor; 4] = [Actor::Client1, Actor::Redis, Actor::Client2, Actor::Client3];

/// What ends a client's having the lock.
const ENDS: [&str; 4] = ["deleted", "released", "lease-lost", "lease-expired"];

/// Client 1 is paused past its lease, after these steps and so just before it deletes the lock;
/// client 2 gets the lock; client 1 wakes up; client 3 tries to get the lock, too.
pub(crate) async fn release_late(
    way: Way,
    steps: &[&str],
    recorder: &mut Recorder,
) -> anyhow::Result<Outcome> {
    let workplace = Workplace::start(way, &ENDS, recorder).await?;
    let mut client_1 = workplace.worker(Actor::Client1, TTL, Duration::ZERO)?;
    client_1.expect("acquired", recorder).await?;
    for step in steps {
        client_1.take(step, recorder).await?;
    }
    client_1.pause(recorder).await?;
    // It is told to give the lock back, and would, if it were not stopped.
    client_1.go_on()?;
    workplace.runs_out(Actor::Client1, recorder).await?;

    let mut client_2 = workplace.worker(Actor::Client2, LONG_TTL, Duration::ZERO)?;
    client_2.expect("acquired", recorder).await?;
    client_1.resume(recorder)?;
    workplace.given_back_by(&mut client_1, Actor::Client2, recorder).await?;

    let mut client_3 = workplace.worker(Actor::Client3, LONG_TTL, Duration::ZERO)?;
    let let_in = client_3.next(recorder).await? == "acquired";
    if let_in {
        client_3.finish(recorder).await?;
    }
    client_2.finish(recorder).await?;

    let deleted = recorder.events().filter(|event| event.event == "lock-deleted").count();
    Ok(Outcome::default()
        .with("locks_of_others_deleted", u64::try_from(deleted)?)
        .with("holders_at_once", workplace.most_at_once(recorder)))
}
