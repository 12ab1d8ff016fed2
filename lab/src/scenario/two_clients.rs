//! The course of every scenario with two clients: client 1 is paused past its lease, just before it
//! writes; client 2 gets the lock, and takes some steps; client 1 wakes up; client 2 goes on.

use fence::Token;

use super::{client::Client, lock::Lock};
use crate::record::{Actor, Recorder, World};

/// The steps that client 2 takes, after it got the lock.
#[derive(Clone, Copy)]
pub(super) struct Course {
    pub(super) before_client_1_wakes_up: &'static [&'static str],
    pub(super) afterwards: &'static [&'static str],
}

/// Client 2 has finished before client 1 wakes up.
pub(super) const OVERTAKEN: Course = Course {
    before_client_1_wakes_up: &["read", "lease-checked", "written", "released"],
    afterwards: &[],
};

/// Plays it, with clients as they are made here. Returns the tokens that they got, and their exit
/// codes.
pub(super) async fn play(
    world: World,
    course: Course,
    lock: &Lock,
    client: impl Fn(Actor) -> anyhow::Result<Client>,
    recorder: &mut Recorder,
) -> anyhow::Result<([Option<Token>; 2], [Option<i32>; 2])> {
    let mut client_1 = client(Actor::Client1)?;
    let token_1 = client_1.expect("acquired", recorder).await?;
    for step in ["read", "lease-checked"] {
        client_1.take(step, recorder).await?;
    }
    client_1.pause(recorder).await?;
    // It is told to write, and would, if it were not stopped.
    client_1.go_on()?;
    lock.runs_out(world, token_1, recorder).await?;

    let mut client_2 = client(Actor::Client2)?;
    let token_2 = client_2.expect("acquired", recorder).await?;
    for step in course.before_client_1_wakes_up {
        client_2.take(step, recorder).await?;
    }

    client_1.resume(recorder)?;
    client_1.written_or_refused(recorder).await?;
    client_1.take("lease-lost", recorder).await?;
    let exit_code_1 = client_1.exit_code().await?;

    for step in course.afterwards {
        client_2.take(step, recorder).await?;
    }
    let exit_code_2 = client_2.exit_code().await?;
    Ok(([token_1, token_2], [exit_code_1, exit_code_2]))
}
