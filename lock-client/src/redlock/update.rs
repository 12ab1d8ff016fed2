//! Updates of a lease, which are renewals and reissues: the messages between an [`Update`] and the nodes.

use std::{mem, sync::Arc};

use fence::Token;
use tokio::sync::mpsc;

use super::{
    lease::Lease,
    machines::{
        regain::Regain,
        update::{Command, Report, Request, Update},
        votes::{Event, OwnerReply},
    },
    nodes::{Answers, Nodes},
    patience,
    regain::Regaining,
    script,
};
use crate::{
    Ttl,
    backend::BackendError,
    clock::Moment,
    redis::{keys::Keys, unix_millis},
};

/// A ttl, and the deadline that follows from it.
#[derive(Clone, Copy)]
pub(super) struct Term {
    pub(super) ttl: Ttl,
    pub(super) valid_until: Moment,
}

impl Term {
    /// Starts now, before anything is sent. Each node counts the ttl from a later moment.
    fn new(ttl: Ttl) -> Self {
        Self { ttl, valid_until: Moment::now() + ttl.reliable() }
    }
}

/// A lease, on the nodes of one roster.
#[derive(Clone)]
pub(super) struct OnNodes {
    pub(super) nodes: Arc<Nodes>,
    pub(super) keys: Arc<Keys>,
    pub(super) lease: Arc<Lease>,
}

impl OnNodes {
    /// Renews the lease, and returns the token to hand out; `None` if the lease is lost. In the
    /// background, the lease then joins the nodes that it does not have.
    pub(super) async fn renew(self, ttl: Ttl) -> Result<Option<Token>, BackendError> {
        let Self { nodes, lease, .. } = &self;
        nodes.check_ttl(ttl)?;
        let _update = lease.update.lock().await;
        let term = Term::new(ttl);
        let renewal = Update::renewal(nodes.len(), &lease.tokens());
        let (token, renewed) = self.carry(renewal, Some(term)).await?;
        if let Some((regain, late)) = renewed {
            let regaining = Regaining { on: self.clone(), term };
            nodes.background().spawn(regaining.run(regain, late));
        }
        Ok(token)
    }

    /// Reissues the lease's token above another, and returns it; `None` if the lease is lost.
    pub(super) async fn reissue(self, above: Token) -> Result<Option<Token>, BackendError> {
        let _update = self.lease.update.lock().await;
        let update = Update::reissue(self.nodes.len(), &self.lease.tokens(), above);
        Ok(self.carry(update, None).await?.0)
    }

    /// Reissues the lease's token so that joined nodes with floors up to this one count. The token that
    /// was handed out stays.
    pub(super) async fn reissue_to_regain(&self, floor: Token) -> Result<(), BackendError> {
        // A renewal that is under way finds these nodes itself.
        let Ok(_update) = self.lease.update.try_lock() else { return Ok(()) };
        let update = Update::regain(self.nodes.len(), &self.lease.tokens(), floor);
        self.carry(update, None).await.map(drop)
    }

    /// Sends the requests of an update, and reports the answers to it. Only a renewal has a term.
    /// Returns the token to hand out; `None` if the lease is lost. After a renewal, it also returns the
    /// nodes to regain, and the answers that are still outstanding.
    async fn carry(
        &self,
        mut update: Update,
        term: Option<Term>,
    ) -> Result<(Option<Token>, Option<(Regain, Answers<OwnerReply>)>), BackendError> {
        let Self { nodes, lease, .. } = self;
        let mut answers = self.ask(update.request(), term);
        let mut renewed = None;
        let mut errors = Vec::new();
        while let Some((node, answer)) = answers.recv().await {
            let event = match answer {
                Ok(reply) => Event::Answer(node, reply),
                Err(error) => {
                    errors.push((node, error));
                    Event::Failed(node)
                }
            };
            for command in lease.count(&mut update, event) {
                match command {
                    Command::Learn { node, grant } => lease.set_grant(nodes.address(node), grant),
                    Command::Renewed(regain) => {
                        lease.set_valid_until(renewed_term(term).valid_until);
                        let late = mem::replace(&mut answers, mpsc::unbounded_channel().1);
                        renewed = Some((regain, late));
                    }
                    Command::Ask(request) => {
                        answers = self.ask(request, term);
                        errors.clear();
                    }
                    Command::Report(Report::Held(token)) => return Ok((Some(token), renewed)),
                    Command::Report(Report::Lost) => return Ok((None, renewed)),
                    Command::Report(Report::Unknown) => return Err(nodes.no_majority(&errors)),
                }
            }
        }
        Err(nodes.no_majority(&errors))
    }

    /// Sends a request to all nodes, each under the lease's grant there.
    fn ask(&self, request: Request, term: Option<Term>) -> Answers<OwnerReply> {
        let (Self { nodes, keys, lease }, start) = (self.clone(), unix_millis());
        self.nodes.ask_all(patience::Request::Vote, move |node, vote| {
            let own = lease.ownership_on(nodes.address(node));
            match request {
                Request::Renew => script::renew(&keys, vote, &own, renewed_term(term).ttl),
                Request::Raise { above } => script::raise(&keys, vote, &own, above, start),
                Request::Seal { token } => script::seal(&keys, vote, &own, own.grant, token),
            }
        })
    }
}

fn renewed_term(term: Option<Term>) -> Term {
    term.expect("a renewal has a term")
}

#[cfg(test)]
mod tests {
    use super::{super::machines::lease_tokens::LeaseTokens, *};
    use crate::redlock::machines::votes::Owned;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    /// Reports that these nodes own the lock, with these numbers. Returns the last commands.
    fn answer(
        update: &mut Update,
        lease: &mut LeaseTokens,
        numbers: [(usize, u64); 2],
    ) -> Vec<Command> {
        let answers = numbers.map(|(node, number)| {
            let owned = Owned { number: token(number), floor: None };
            update.on(lease, Event::Answer(node, OwnerReply::Owned(owned)))
        });
        answers.into_iter().flatten().collect()
    }

    /// The second reissue does not get the answer of the node that sealed the first one's token.
    #[test]
    fn renewal_keeps_the_token_of_a_lease_that_has_tried_twice_to_regain_a_node() {
        let mut lease = LeaseTokens::new(token(3));
        for (counters, highest) in [([(0, 9), (1, 6)], 9), ([(1, 7), (2, 8)], 8)] {
            let mut regain = Update::regain(3, &lease, token(5));
            let seal = answer(&mut regain, &mut lease, counters);
            assert_eq!(seal, [Command::Ask(Request::Seal { token: token(highest) })]);
        }
        let mut renewal = Update::renewal(3, &lease);
        let seal = answer(&mut renewal, &mut lease, [(0, 9), (1, 8)]).pop();
        assert_eq!(seal, Some(Command::Ask(Request::Seal { token: token(9) })));
        let report = answer(&mut renewal, &mut lease, [(0, 9), (1, 9)]);
        assert_eq!(report, [Command::Report(Report::Held(token(3)))]);
        assert_eq!(lease.height(), token(9));
    }

    /// The joined node has a high counter, but does not answer the reissue.
    #[test]
    fn reissue_returns_a_higher_token_although_a_lease_has_tried_to_regain_a_node() {
        let mut lease = LeaseTokens::new(token(3));
        let mut regain = Update::regain(3, &lease, token(5));
        let seal = answer(&mut regain, &mut lease, [(0, 9), (1, 6)]);
        assert_eq!(seal, [Command::Ask(Request::Seal { token: token(9) })]);
        // No node answers the seal.
        let mut reissue = Update::reissue(3, &lease, token(3));
        let seal = answer(&mut reissue, &mut lease, [(1, 7), (2, 4)]);
        assert_eq!(seal, [Command::Ask(Request::Seal { token: token(7) })]);
        let report = answer(&mut reissue, &mut lease, [(1, 7), (2, 7)]);
        assert_eq!(report, [Command::Report(Report::Held(token(7)))]);
    }
}
