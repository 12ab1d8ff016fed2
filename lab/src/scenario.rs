//! Scenarios: what goes wrong, played with real processes, with the fence and without.
//!
//! Each is one file: what it claims, what its two worlds are, and how they have to end. They share
//! their course (`two_clients`), and what it is played with: a `lock`, a `storage` or a table
//! (`shelf`), and a `client`.

mod claim_before_read;
mod client;
mod embedded_postgres;
mod lock;
mod never_saw_34;
mod oversell;
mod shelf;
mod storage;
mod token_33_34;
mod two_clients;

use async_trait::async_trait;
use fence::Token;

use crate::record::{Outcome, Outcomes, Recorder, World};

/// The storage refused the token: an exit code of the clients.
pub(crate) const REFUSED: u8 = 80;

/// Something that goes wrong without a fence, and not with one.
#[async_trait(?Send)]
pub trait Scenario: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it claims, in one sentence.
    fn claim(&self) -> &'static str;

    /// What tells its two worlds apart: first the unsafe one, then its twin.
    fn worlds(&self) -> [&'static str; 2];

    /// How the two worlds have to end to show what it claims.
    fn ends(&self) -> [End; 2];

    /// Plays it in one world.
    ///
    /// # Errors
    /// If it can't be played.
    async fn play(&self, world: World, recorder: &mut Recorder) -> anyhow::Result<End>;
}

/// How a world ended: client 1 and client 2, and the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    tokens: [Option<Token>; 2],
    exit_codes: [Option<i32>; 2],
    outcome: Outcome,
}

impl End {
    /// The end in which client 1 had token 33, client 2 had token 34, and they left with these codes.
    fn with(exit_codes: [u8; 2], outcome: Outcome) -> Self {
        let tokens = [33, 34].map(|token| Token::new(token).ok());
        Self { tokens, exit_codes: exit_codes.map(|code| Some(code.into())), outcome }
    }
}

/// Plays a scenario in both worlds. Returns how they ended, and whether this showed what it claims.
///
/// # Errors
/// If it can't be played.
pub async fn play(
    scenario: &dyn Scenario,
    recorder: &mut Recorder,
) -> anyhow::Result<(Outcomes, bool)> {
    let unfenced = scenario.play(World::Unfenced, recorder).await?;
    let fenced = scenario.play(World::Fenced, recorder).await?;
    let ends = [unfenced, fenced];
    let shown = ends == scenario.ends();
    let [unfenced, fenced] = ends.map(|end| end.outcome);
    Ok((Outcomes { fenced, unfenced }, shown))
}

/// All scenarios; the first is the one to begin with.
pub static ALL: &[&dyn Scenario] = &[
    &token_33_34::Token33And34,
    &oversell::Oversell,
    &claim_before_read::ClaimBeforeRead,
    &embedded_postgres::EmbeddedPostgres,
    &never_saw_34::NeverSaw34,
];

/// The scenario of a name.
pub fn named(name: &str) -> Option<&'static dyn Scenario> {
    ALL.iter().copied().find(|scenario| scenario.name() == name)
}
