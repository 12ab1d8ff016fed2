//! The protocol, and the ways to break it that have to be found.

/// How each part of the protocol is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What a seal looks at.
    pub seal: Seal,
    /// What a reissue consists of.
    pub reissue: Reissue,
    /// How a node that restarted gets its vote back.
    pub admission: Admission,
    /// What the storage compares.
    pub binding: Binding,
    /// Whether locks end by themselves.
    pub expiry: Expiry,
    /// Where a release goes.
    pub release: Release,
}

impl Variant {
    /// The protocol as it is built.
    pub const AS_BUILT: Self = Self {
        seal: Seal::Ownership,
        reissue: Reissue::Sealed,
        admission: Admission::WaitsThenCopies,
        binding: Binding::Holder,
        expiry: Expiry::AnyMoment,
        release: Release::ToAll,
    };
}

/// What a seal looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The ownership: the holder, and the grant or the token.
    Ownership,
    /// The holder only.
    HolderAlone,
    /// Nothing: a node is sealed whoever has the lock there.
    Unchecked,
    /// There is none: M grants are enough, and the token is the highest.
    None,
}

/// What a reissue consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reissue {
    /// Raised on M, sealed on M; what is written afterwards is read anew.
    Sealed,
    /// Raised on M only.
    Unsealed,
    /// As it should be, but a write that was refused is sent again with the new token.
    Resends,
}

/// How a node that restarted gets its vote back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It waits, copies, and is admitted.
    WaitsThenCopies,
    /// It copies, waits, and is admitted.
    CopiesThenWaits,
    /// It never lost its vote.
    None,
}

/// What the storage compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The token, and of equal ones the holder.
    Holder,
    /// The token only.
    None,
}

/// Whether locks end by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// At any moment, whatever the clocks do.
    AnyMoment,
    /// They don't.
    Never,
}

/// Where a release goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// To all nodes.
    ToAll,
    /// To the nodes whose grant was heard of.
    ToHeardOf,
}
