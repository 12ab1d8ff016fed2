//! The requests that change a node's record. Each is one script, which compares before it changes
//! anything: a request that arrives late must do no harm.

use crate::{
    redis::{
        keys::Keys,
        script::{Call, Script, script},
    },
    redlock::{
        machines::takeover::Answer,
        peer::{Peer, PeerError},
        roster::Roster,
    },
};

static PREPARE: Script = script!("../run_id.lua", "state.lua", "prepare.lua");
static CLOSE: Script = script!("../run_id.lua", "state.lua", "close.lua");
static ADMIT: Script = script!("../run_id.lua", "state.lua", "admit.lua");
static RETIRE: Script = script!("../run_id.lua", "state.lua", "retire.lua");

impl Peer {
    /// Has a process without a vote hold this roster, if its data have not changed since the look.
    pub(super) async fn prepare(&self, roster: &Roster) -> Result<Answer, PeerError> {
        let seen = self.roster().map(ToString::to_string).unwrap_or_default();
        self.request(self.call(&PREPARE).arg(roster.to_string()).arg(seen)).await
    }

    /// Exchanges exactly this roster for another.
    pub(super) async fn close(&self, from: &Roster, to: &Roster) -> Result<Answer, PeerError> {
        self.request(self.call(&CLOSE).arg(from.to_string()).arg(to.to_string())).await
    }

    /// Gives the process its vote, if it holds exactly this roster.
    pub(super) async fn admit(&self, roster: &Roster) -> Result<Answer, PeerError> {
        self.request(self.call(&ADMIT).arg(roster.to_string())).await
    }

    /// Takes the vote of a process away that votes for this roster.
    pub(super) async fn retire(&self, roster: &Roster) -> Result<Answer, PeerError> {
        self.request(self.call(&RETIRE).arg(roster.to_string())).await
    }

    fn call(&self, script: &'static Script) -> Call {
        script.with([Keys::NODE.to_owned()]).arg(&self.process)
    }

    async fn request(&self, call: Call) -> Result<Answer, PeerError> {
        let state = call.in_full().query_async(&mut self.connection.clone()).await;
        let (process, roster, is_admitted): (_, Option<String>, _) =
            state.map_err(|error| self.error(&error))?;
        Ok(Answer {
            address: self.address.clone(),
            process,
            roster: roster.and_then(|text| Roster::parse(&text)),
            is_admitted,
            is_fit: self.unfit.is_none(),
        })
    }
}
