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

/// The tokens that the clients got, and how they ended.
#[derive(Debug, PartialEq)]
pub(super) struct Ends {
    tokens: [Option<Token>; 2],
    exit_codes: [Option<i32>; 2],
}

impl Ends {
    /// Client 1 with token 33, client 2 with token 34, and these exit codes.
    pub(super) fn with(exit_codes: [i32; 2]) -> Self {
        let tokens = [33, 34].map(|token| Token::new(token).ok());
        Self { tokens, exit_codes: exit_codes.map(Some) }
    }
}

/// Plays it, with clients as they are made here.
pub(super) async fn play(
    world: World,
    course: Course,
    lock: &Lock,
    client: impl Fn(Actor) -> anyhow::Result<Client>,
    recorder: &mut Recorder,
) -> anyhow::Result<Ends> {
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
    Ok(Ends { tokens: [token_1, token_2], exit_codes: [exit_code_1, exit_code_2] })
}
