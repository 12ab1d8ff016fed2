//! A second model: the members of the cluster change, while clients acquire and renew.
//!
//! # The protocol
//!
//! Each node has a record: its *change*, the ballot that it has *promised*, the ballot under which
//! it *accepted* its change, and the admitted process. A change has a unique id, an epoch, and the
//! members of that epoch. The start of the cluster is one, too. A node *votes under* a change if
//! its record has that change, and its process is the admitted one. It accepts grants, seals,
//! raises, renewals and joins only under its change. A release is exempt.
//!
//! An operator replaces members, or adds some. The old set has N members and a majority of M, the
//! new one N' ≥ N and M'. The operator is a *proposer*:
//!
//! 1. **Promise**, phase 1 of Paxos. The members of the old set promise a ballot that is above any
//!    they promised before. Each answers the change that it has accepted for this epoch, and its
//!    ballot. A member that has closed still answers.
//! 2. **Read the promises again.** If M processes that promised are still running, the operator
//!    proposes the accepted change with the highest ballot, or its own if there is none. A restart
//!    before that voids the node's promise.
//! 3. **Close**, phase 2: a compare-and-set on each of these members. If it has promised no higher
//!    ballot, it takes the change and the ballot into its record. From then on, it votes under the
//!    new change, also for running leases, and rejects requests under the old one. If the change
//!    removes it, it votes no more, and only takes part in the ballot.
//! 4. **Read the closed members again.** The change is decided if M processes still hold it under
//!    this ballot. M nodes that hold it under several ballots are not enough.
//! 5. **Wait** until everything has ended that was under way: rounds, renewals and leases.
//! 6. **Copy** counters from M' voters under the change to each new node, and admit it. The
//!    admission compares the process: if the node restarted meanwhile, the copy starts over.
//! 7. A member of both sets that was unreachable closes later, by the same compare-and-set. It must
//!    be in the epoch before. A node that missed an epoch is admitted as if it had restarted.
//!
//! A member that restarts has lost its counters, its promise and its change. The operator first
//! learns the change of the others, and then waits until everything has ended that was under way.
//! Then M other voters under that change give the node
//!
//! - their highest counter;
//! - their highest promise, without which a lower ballot than it promised could still succeed;
//! - the highest ballot under which they accepted the change, without which a later proposer could
//!   take an outdated proposal for the newer one.
//!
//! # What is modelled
//!
//! - Three old members. One of them is replaced, or two are added. Changes may follow each other:
//!   a removed node may come back two epochs later, and a member may miss an epoch.
//! - Two operators with different proposals, whose ballots overlap. Either may die at any step: it
//!   takes no further one.
//! - Two clients. Each acquires once, step by step or in one step, and renews its lease across
//!   epochs. A client uses any change that a node votes under, even if it is undecided.
//! - Locks that expire early, so that tokens depend on no clock; or only with their lease, so that
//!   leases must exclude each other.
//! - Restarts at any moment, with or without an old copy of the lock and the counter.
//!
//! No single model has everything; each test says what its model has.
//!
//! # What is left out
//!
//! - Reissues across epochs. They compare the change as renewals do.
//! - Requests that arrive after their client has ended. The other model has them.
//! - Time. A wait is over when everything under way has ended, as if clocks ran at the same speed.
//! - Five old members.
//!
//! # Negative controls
//!
//! Two changes are decided for one epoch:
//! - without promises, or with a proposer that adopts no accepted change;
//! - with promises that are not read again;
//! - with a change that M - 1 members have closed for;
//! - with closed members that are not read again;
//! - with a decision that counts members under any ballot;
//! - with a restarted member that is admitted without its promise, or without its accepted ballot;
//! - with a restarted member that copies from fewer than M others, or from others of any change.
//!
//! A token is issued twice:
//! - with members that vote under any change: the old list and the new one share no node;
//! - with clients that count the vote of a removed node;
//! - with fewer members than before;
//! - with a copy from members that have not closed yet;
//! - with a copy from fewer than M' members;
//! - with an admission that does not compare the process;
//! - with a restarted member that copies from others of any change;
//! - with a member that closes directly although it missed the epochs in which it was removed and
//!   added again.
//!
//! Two leases overlap:
//! - without the wait, or with a wait that starts before the decision;
//! - with a decision by fewer than M members, because the wait starts too early;
//! - with a node that missed an epoch and is admitted without a wait.
//!
//! # What turned out not to matter
//!
//! - A client need not know whether a change is decided. New nodes vote only after the decision, and
//!   no token was repeated although clients used undecided changes.
//! - The wait protects only the leases. Tokens stay unique without it, because the sources of the
//!   copy have closed: they seal nothing under the old change any more.
//! - A close need not be limited to the processes that promised, if the promises are read again and
//!   an admission restores them. This was checked with one restart.

mod admission;
mod client;
mod client_step;
mod config;
mod model;
mod properties;
mod proposer;
mod rules;
mod state;

pub use admission::NodeStep;
pub use client_step::ClientStep;
pub use config::{Change, ChangeId, Config, MOST_CLIENTS, MOST_PROPOSERS};
pub use model::{Report, Step, check};
pub use properties::{EPOCHS_ARE_DECIDED_ONCE, LEASES_EXCLUDE, SAFETY, Situation};
pub use proposer::ProposerStep;
pub use rules::{
    AdmissionRule, CloseRule, CopyRule, DecisionRule, MissedRule, PromiseRule, Rules, SourceRule,
    VoteRule, WaitRule,
};
pub use state::State;
