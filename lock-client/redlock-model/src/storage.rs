//! A third model: a fenced storage, and clients that read, modify and write its value.
//!
//! The tokens are any, also lower ones and such that two clients have: so what holds here needs nothing of
//! the lock service, and withstands counters that are lost. A claim or a write may be late, and may be
//! delivered more than once. The rule is `fence::decide`, with tokens and holders of one byte.

use std::cmp::Ordering;

use stateright::Model;

use crate::{
    check::{Explore, Explored, Report, explore},
    id::{Holder, Token},
};

/// No client overwrites an accepted write that it has not read.
pub const NO_WRITE_IS_LOST: &str = "no accepted write is lost";

/// The limits of a model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The number of clients, with one lease each.
    pub clients: u8,
    /// The highest token.
    pub highest_token: Token,
    /// The rule that is broken; `None` for the rule as built.
    pub fault: Option<Fault>,
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The storage compares the tokens, but not the holders.
    FenceComparesToken,
    /// After a reissue, the client sends a rejected write again with the new token.
    RejectedWriteIsResent,
}

/// A situation that the storage must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// Another client has the token of the fence, too.
    TokenIssuedTwice,
    /// The value was written by one client, and then by another.
    WrittenByTwo,
}

/// A token and its holder: the fence, an offer to the storage, or the write that a value comes from.
type Fence = Option<(Token, Holder)>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    fence: Fence,
    value: Fence,
    clients: Vec<Client>,
    written_by_two: bool,
    write_lost: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// The token; 0 before it acquires.
    token: Token,
    /// Whether its lease has ended. A late claim may still reach the storage.
    has_ended: bool,
    /// The token of the last accepted claim, and the value that this claim read.
    claimed: Token,
    read: Fence,
}

/// A step of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It acquires the lock, or reissues its token.
    Issue(Token),
    /// A claim reaches the storage.
    Claim,
    /// A write reaches the storage.
    Write,
    /// It releases the lock.
    End,
}

#[derive(Debug)]
struct Storage(Config);

impl Storage {
    fn accepts(&self, fence: Fence, (token, holder): (Token, Holder)) -> bool {
        fence.is_none_or(|(highest, own)| match token.cmp(&highest) {
            Ordering::Greater => true,
            Ordering::Equal => holder == own || self.0.fault == Some(Fault::FenceComparesToken),
            Ordering::Less => false,
        })
    }
}

impl Model for Storage {
    type State = State;
    type Action = (Holder, Step);

    fn init_states(&self) -> Vec<State> {
        let clients = vec![Client::default(); self.0.clients.into()];
        vec![State { fence: None, value: None, clients, written_by_two: false, write_lost: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Self::Action>) {
        for (client, number) in state.clients.iter().zip(0..) {
            let higher = (client.token + 1..=self.0.highest_token).map(Step::Issue);
            let issued = higher.filter(|_| !client.has_ended);
            let (has_token, has_claimed) = (client.token != 0, client.claimed != 0);
            let others =
                [(Step::Claim, has_token), (Step::Write, has_claimed), (Step::End, has_token)];
            let others = others.into_iter().filter(|(_, is_sent)| *is_sent).map(|(step, _)| step);
            actions.extend(issued.chain(others).map(|step| (Holder(number), step)));
        }
    }

    fn next_state(&self, before: &State, (holder, step): Self::Action) -> Option<State> {
        let mut state = before.clone();
        let client = &mut state.clients[holder.index()];
        match step {
            Step::Issue(token) => {
                let resends = self.0.fault == Some(Fault::RejectedWriteIsResent);
                if resends && client.claimed != 0 {
                    client.claimed = token;
                }
                client.token = token;
            }
            Step::Claim => {
                if !self.accepts(state.fence, (client.token, holder)) {
                    return None;
                }
                state.fence = Some((client.token, holder));
                // The answer reaches the client only during its lease.
                if !client.has_ended {
                    (client.claimed, client.read) = (client.token, state.value);
                }
            }
            Step::Write => {
                let write = (client.claimed, holder);
                if !self.accepts(state.fence, write) {
                    return None;
                }
                state.fence = Some(write);
                // A repeated write changes nothing. The claim read the value, or the client wrote it itself.
                let is_own = state.value.is_some_and(|(_, own)| own == holder);
                state.write_lost |= state.value != client.read && !is_own;
                state.written_by_two |= state.value.is_some() && !is_own;
                state.value = Some(write);
            }
            Step::End => client.has_ended = true,
        }
        (!before.write_lost && state != *before).then_some(state)
    }
}

impl Explore for Config {
    type Situation = Situation;
    type Fault = Fault;

    fn with_fault(self, fault: Fault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    fn explore(self, threads: usize) -> Report<Situation> {
        let explored = Explored {
            model: Storage(self),
            violated: |_, state: &State| {
                state.write_lost.then_some(NO_WRITE_IS_LOST).into_iter().collect()
            },
            situations: &[Situation::TokenIssuedTwice, Situation::WrittenByTwo],
            occurs: |_, situation, state| match situation {
                Situation::TokenIssuedTwice => state.fence.is_some_and(|(token, holder)| {
                    let mut clients = state.clients.iter().zip(0..);
                    clients
                        .any(|(client, number)| client.token == token && Holder(number) != holder)
                }),
                Situation::WrittenByTwo => state.written_by_two,
            },
        };
        explore(explored, threads)
    }
}
