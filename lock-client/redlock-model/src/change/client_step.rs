//! The steps of clients.

use super::{
    client::{Client, Phase},
    config::{ChangeId, Config},
    state::State,
};
use crate::{
    id::{Holder, MOST_NODES, NodeId, NodeSet, Token},
    protocol::{JoinRule, SealRule},
};

/// A step of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// A node grants the lock, under a change.
    Grant(ChangeId, NodeId),
    /// The client takes the highest of M grants as its token.
    FixToken(Token),
    /// A node seals the token.
    Seal(NodeId),
    /// The client concludes that it holds the lock.
    Acquire,
    /// The client acquires the lock on these nodes, in one step.
    AcquireAtomically(ChangeId, NodeSet),
    /// The client starts a renewal under a change, and gives up the one before.
    StartRenewal(ChangeId),
    /// A node renews the lock, and counts.
    Renew(NodeId),
    /// The renewal has M nodes.
    CompleteRenewal,
    /// A free node is joined.
    Join(NodeId),
    /// The client gives up its round, or its lease ends.
    End,
    /// The release reaches a node.
    Release(NodeId),
}

impl Client {
    /// The steps of a client that are possible.
    pub(crate) fn steps(config: &Config, state: &State, holder: Holder) -> Vec<ClientStep> {
        let client = state.client(holder);
        let mut steps = Vec::new();
        match client.phase {
            // The clients are alike, so they start in their order.
            Phase::Idle => {
                let others = &state.clients[..holder.index()];
                if others.iter().all(|other| other.phase != Phase::Idle) {
                    client.add_first_steps(config, state, &mut steps);
                }
            }
            Phase::Round => client.add_round_steps(config, state, &mut steps),
            Phase::Lease => {
                steps.push(ClientStep::End);
                if config.renewals {
                    client.add_renewal_steps(config, state, holder, &mut steps);
                }
            }
            Phase::Ended if config.releases && client.token != 0 => {
                steps.extend(NodeId::first(MOST_NODES).map(ClientStep::Release));
            }
            Phase::Ended => {}
        }
        steps
    }

    fn add_first_steps(&self, config: &Config, state: &State, steps: &mut Vec<ClientStep>) {
        for change in state.known_changes(config) {
            if config.atomic_acquires {
                let majorities = config.majorities(change);
                steps.extend(majorities.map(|nodes| ClientStep::AcquireAtomically(change, nodes)));
            } else {
                let asked = config.asked(change);
                let asked = asked.iter().filter(|id| self.has_vote(config, state, change, *id));
                steps.extend(asked.map(|id| ClientStep::Grant(change, id)));
            }
        }
    }

    fn add_round_steps(&self, config: &Config, state: &State, steps: &mut Vec<ClientStep>) {
        steps.push(ClientStep::End);
        let change = self.change;
        let members = config.asked(change);
        let voters = members.iter().filter(|id| self.has_vote(config, state, change, *id));
        if self.token == 0 {
            let tokens = 1..=config.highest_counter;
            let may_fix = |token: &Token| {
                let up_to = self.grants.iter().filter(|grant| (1..=*token).contains(*grant));
                self.grants.contains(token) && config.is_majority(change, up_to.count())
            };
            steps.extend(tokens.filter(may_fix).map(ClientStep::FixToken));
        } else if config.is_majority(change, self.held.len()) {
            steps.push(ClientStep::Acquire);
        }
        for id in voters {
            let grant = self.grants[id.index()];
            if !self.asked.contains(id) {
                steps.push(ClientStep::Grant(change, id));
            }
            if 0 < grant && grant < self.token && !self.held.contains(id) {
                steps.push(ClientStep::Seal(id));
            }
        }
    }

    fn add_renewal_steps(
        &self,
        config: &Config,
        state: &State,
        holder: Holder,
        steps: &mut Vec<ClientStep>,
    ) {
        let changes = state.known_changes(config);
        let useful = changes.filter(|change| self.may_renew_under(config, state, *change));
        steps.extend(useful.map(ClientStep::StartRenewal));
        for id in config.asked(self.change).iter() {
            if !self.has_vote(config, state, self.change, id) {
                continue;
            }
            match state.member(id).node.lock {
                None => steps.push(ClientStep::Join(id)),
                Some(lock) if lock.holder == holder && lock.floor < self.token => {
                    if self.is_renewing && !self.renewed.contains(id) {
                        steps.push(ClientStep::Renew(id));
                    }
                }
                Some(_) => {}
            }
        }
        if self.is_renewing && config.is_majority(self.change, self.renewed.len()) {
            steps.push(ClientStep::CompleteRenewal);
        }
    }

    /// Whether a renewal under a change may have an effect. A client may have learnt of a change that
    /// is not decided, and leaves it for another of the same epoch. If locks expire early, then a renewal
    /// under the same change has one only after a higher token.
    fn may_renew_under(&self, config: &Config, state: &State, change: ChangeId) -> bool {
        let is_earlier = config.epoch(change) < config.epoch(self.change);
        let is_of_use = !config.early_expiry || state.history.highest_issued() > self.token;
        if change == self.change { is_of_use } else { !is_earlier }
    }

    pub(crate) fn apply(
        config: &Config,
        state: &mut State,
        holder: Holder,
        step: ClientStep,
    ) -> Option<()> {
        let State { clients, members, history, .. } = state;
        let client = &mut clients[holder.index()];
        match step {
            ClientStep::Grant(change, id) => {
                client.start(change, history.highest_issued());
                client.asked.insert(id);
                let grant = members[id.index()].node.grant(holder)?.number;
                client.grants[id.index()] = grant;
                client.count_grants();
            }
            ClientStep::FixToken(token) => {
                client.token = token;
                client.count_grants();
            }
            ClientStep::Seal(id) => {
                let grants = [client.grants[id.index()], client.token];
                let node = &mut members[id.index()].node;
                node.seal(holder, grants, client.token, SealRule::ComparesOwnership)?;
                client.held.insert(id);
            }
            ClientStep::Acquire => {
                history.issue(client.token, client.issued_before);
                client.acquire();
            }
            ClientStep::AcquireAtomically(change, nodes) => {
                Self::acquire_atomically(config, state, holder, change, nodes)?;
            }
            ClientStep::StartRenewal(change) => {
                let issued_before = history.highest_issued();
                client.start_renewal(change, issued_before);
            }
            ClientStep::Renew(id) => client.renewed.insert(id),
            ClientStep::CompleteRenewal => {
                history.prolong(client.token, client.issued_before);
                client.complete_renewal();
            }
            ClientStep::Join(id) => {
                let node = &mut members[id.index()].node;
                node.join(holder, client.token, client.token, JoinRule::Floor)?;
            }
            ClientStep::End => client.end(config),
            ClientStep::Release(id) => {
                members[id.index()].node.release(holder, client.token);
            }
        }
        let leases = state.clients.iter().filter(|client| client.phase == Phase::Lease);
        state.leases_overlapped |= !config.early_expiry && leases.count() > 1;
        Some(())
    }

    fn acquire_atomically(
        config: &Config,
        state: &mut State,
        holder: Holder,
        change: ChangeId,
        nodes: NodeSet,
    ) -> Option<()> {
        let issued_before = state.history.highest_issued();
        let mut client = *state.client(holder);
        client.start(change, issued_before);
        for id in nodes.iter() {
            if !client.has_vote(config, state, change, id) {
                return None;
            }
            let grant = state.member_mut(id).node.grant(holder)?.number;
            client.token = client.token.max(grant);
            client.grants[id.index()] = grant;
        }
        for id in nodes.iter() {
            let grants = [client.grants[id.index()], client.token];
            let node = &mut state.member_mut(id).node;
            node.seal(holder, grants, client.token, SealRule::ComparesOwnership);
        }
        client.held = nodes;
        state.history.issue(client.token, issued_before);
        client.acquire();
        state.clients[holder.index()] = client;
        Some(())
    }
}
