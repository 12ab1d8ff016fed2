//! The rules of a change, and ways to break them.
//!
//! The first variant of each rule is the protocol. The others are for negative controls.

/// Which variant of each rule a model follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What a node compares before it votes.
    pub vote: VoteRule,
    /// How a proposer finds out what to propose.
    pub promise: PromiseRule,
    /// Which nodes a proposer may close.
    pub close: CloseRule,
    /// When a change is decided.
    pub decision: DecisionRule,
    /// When the wait starts.
    pub wait: WaitRule,
    /// When counters are copied to a new node.
    pub copy: CopyRule,
    /// Which nodes are sources of a copy.
    pub sources: SourceRule,
    /// What the admission of a node compares and restores.
    pub admission: AdmissionRule,
    /// How a member closes that has missed an epoch.
    pub missed: MissedRule,
}

impl Rules {
    /// The protocol.
    pub const PROTOCOL: Self = Self {
        vote: VoteRule::ComparesChange,
        promise: PromiseRule::AdoptsHighest,
        close: CloseRule::PromisedProcesses,
        decision: DecisionRule::SameBallotReadAgain,
        wait: WaitRule::FromDecision,
        copy: CopyRule::AfterTheWait,
        sources: SourceRule::MajorityOfSameChange,
        admission: AdmissionRule::ComparesProcess,
        missed: MissedRule::IsAdmitted,
    };
}

/// What a node compares before it votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteRule {
    /// The request's change with its own. A client asks members of that change alone.
    ComparesChange,
    /// The request's change with its own. A client also asks nodes that the change has removed.
    CountsRemoved,
    /// Nothing: a close does not close.
    IgnoresChange,
}

/// How a proposer finds out what to propose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromiseRule {
    /// It asks a majority for promises, and adopts the accepted proposal with the highest ballot.
    AdoptsHighest,
    /// The same, but it does not read the promises again before it proposes.
    NotReadAgain,
    /// It asks for promises, but proposes its own change.
    ProposesItsOwn,
    /// It asks for no promise. This is enough for a single proposer.
    NoPromise,
}

/// Which nodes a proposer may close before its change is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseRule {
    /// Those that promised, if they have not restarted since.
    PromisedProcesses,
    /// Those that promised.
    PromisedNodes,
    /// All that have promised no higher ballot.
    AnyNode,
}

/// When a change is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionRule {
    /// M processes, which accepted it under one ballot, still hold it when they are read again.
    SameBallotReadAgain,
    /// M nodes hold it, under any ballot.
    AnyBallot,
    /// M nodes have answered that they accepted it.
    NotReadAgain,
    /// M - 1 processes hold it.
    FewerThanMajority,
}

/// When the wait starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitRule {
    /// When the change is decided. The wait of a member starts when it has restarted and its new
    /// change is known.
    FromDecision,
    /// When the change is proposed.
    FromProposal,
    /// When the change is decided. A node that missed an epoch does not wait.
    NotIfMissed,
    /// There is no wait, except when a member has restarted.
    NoWait,
}

/// When counters are copied to a new node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyRule {
    /// When the wait is over.
    AfterTheWait,
    /// When the change is decided, before the wait.
    BeforeTheWait,
    /// At any time, from voters of any change.
    BeforeTheClose,
}

/// Which nodes are sources of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRule {
    /// M voters of the change into which the node is admitted.
    MajorityOfSameChange,
    /// M voters of any change.
    AnyChange,
    /// M - 1 voters of that change.
    FewerThanMajority,
}

/// What the admission of a node compares and restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionRule {
    /// The process must be the same as when the counters were copied to it. The ballot under which
    /// the sources accepted the change is restored.
    ComparesProcess,
    /// It compares nothing: another process may have started since.
    IgnoresProcess,
    /// It compares the process, but does not restore the accepted ballot.
    ForgetsBallot,
    /// It compares the process, but does not restore the promise.
    ForgetsPromise,
}

/// How a member closes that has missed an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedRule {
    /// It does not. It is admitted like a new node.
    IsAdmitted,
    /// It closes directly into the last decided change, if it was a member of the one before.
    ClosesDirectly,
}
