//! Updates of a lease: a renewal or a reissue. Those of one lease never overlap.

use super::{
    Token,
    lease_tokens::LeaseTokens,
    regain::Regain,
    votes::{Counting, Event, OwnerReply, Verdict, Votes},
};

/// A renewal or a reissue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Update {
    pub(crate) purpose: Purpose,
    /// The request that the nodes were asked last.
    request: Request,
    /// The height of the lease when it began.
    height: Token,
    pub(crate) votes: Votes,
}

/// What an update is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Purpose {
    Renewal,
    /// A reissue for a token above another.
    Reissue,
    /// A reissue that only makes joined nodes count. It does not change the token that was handed
    /// out.
    Regain,
}

/// A request to all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    /// Set the full ttl. A node answers the token that is sealed there.
    Renew,
    /// Raise the counter above this token. A node answers its counter.
    Raise { above: Token },
    /// Seal this token.
    Seal { token: Token },
}

/// What the client must do now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Name this grant in later requests to this node.
    Learn { node: usize, grant: Token },
    /// A majority that counts has renewed the lease. Regain the other nodes once the renewal has
    /// ended.
    Renewed(Regain),
    /// Ask all nodes, and report no further answers to earlier requests.
    Ask(Request),
    /// Return this. The update has ended.
    Report(Report),
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The client has the lease, with this token.
    Held(Token),
    /// The lease is lost.
    Lost,
    /// Too few nodes have answered.
    Unknown,
}

impl Update {
    /// Starts a renewal.
    pub(crate) fn renewal(nodes: usize, lease: &LeaseTokens) -> Self {
        Self::new(nodes, lease, Purpose::Renewal, Request::Renew)
    }

    /// Starts a reissue above a token.
    pub(crate) fn reissue(nodes: usize, lease: &LeaseTokens, above: Token) -> Self {
        let above = above.max(lease.height());
        Self::new(nodes, lease, Purpose::Reissue, Request::Raise { above })
    }

    /// Starts a reissue that makes joined nodes with floors up to this one count.
    pub(crate) fn regain(nodes: usize, lease: &LeaseTokens, floor: Token) -> Self {
        let above = floor.max(lease.height());
        Self::new(nodes, lease, Purpose::Regain, Request::Raise { above })
    }

    fn new(nodes: usize, lease: &LeaseTokens, purpose: Purpose, request: Request) -> Self {
        let height = lease.height();
        Self { purpose, request, height, votes: Votes::new(nodes, request.counting(height)) }
    }

    /// The request that the nodes were asked last. A new update starts with it.
    pub(crate) fn request(&self) -> Request {
        self.request
    }

    /// Counts an answer to the last request.
    pub(crate) fn on(&mut self, lease: &mut LeaseTokens, event: Event) -> Vec<Command> {
        let mut commands = Vec::new();
        if let Event::Answer(node, OwnerReply::Other { grant }) = event {
            commands.push(Command::Learn { node, grant });
        }
        match self.votes.on(event) {
            Verdict::Open => {}
            Verdict::AskAgain => commands.push(Command::Ask(self.request)),
            Verdict::Majority => self.advance(lease, &mut commands),
            Verdict::Lost => commands.push(Command::Report(self.fail(lease, Report::Lost))),
            Verdict::Unknown => commands.push(Command::Report(self.fail(lease, Report::Unknown))),
        }
        commands
    }

    /// Takes the next step after a majority that counts.
    fn advance(&mut self, lease: &mut LeaseTokens, commands: &mut Vec<Command>) {
        let lowest = self.votes.numbers().min().expect("a majority is at least one node");
        let highest = self.votes.numbers().max().expect("a majority is at least one node");
        match self.request {
            // A majority has sealed the lowest token. If a reissue has sealed a higher one on some
            // nodes only, complete it before that token is returned.
            Request::Renew => {
                commands.push(Command::Renewed(Regain::new(&self.votes)));
                lease.reach(lowest);
                if lowest != highest {
                    commands.push(self.seal(highest));
                    return;
                }
            }
            // The highest of a majority of counters is above every token that any majority has
            // issued. Without the seal, the next round could find lower counters, and issue the
            // token again.
            Request::Raise { above } => {
                debug_assert!(highest > above, "the counters were raised");
                if self.purpose == Purpose::Regain {
                    lease.regain(highest);
                }
                commands.push(self.seal(highest));
                return;
            }
            // A reissue hands its token out even if an earlier one may have sealed a higher token, to
            // make joined nodes count.
            Request::Seal { token } => match self.purpose {
                Purpose::Reissue => lease.hand_out(token),
                Purpose::Renewal | Purpose::Regain => lease.reach(token),
            },
        }
        commands.push(Command::Report(Report::Held(lease.token())));
    }

    fn seal(&mut self, token: Token) -> Command {
        self.request = Request::Seal { token };
        self.votes = Votes::new(self.votes.nodes(), self.request.counting(self.height));
        Command::Ask(self.request)
    }

    /// The report of an update that fails. A renewal that cannot seal the highest token still has
    /// the lowest.
    fn fail(&self, lease: &LeaseTokens, report: Report) -> Report {
        match (self.purpose, self.request) {
            (Purpose::Renewal, Request::Seal { .. }) => Report::Held(lease.token()),
            _ => report,
        }
    }
}

impl Request {
    /// Which nodes count for a lease of this height.
    fn counting(self, height: Token) -> Counting {
        match self {
            Self::Raise { .. } => Counting::All,
            Self::Renew | Self::Seal { .. } => Counting::FloorUpTo(height),
        }
    }
}
