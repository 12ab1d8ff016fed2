//! One search for the members of the cluster: which servers are asked, and which of them has which seat.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::timeout;

use super::Members;
use crate::{
    Moment,
    redlock::{
        majority::majority,
        node::Node,
        node_error::NodeError,
        node_urls::NodeUrl,
        nodes::no_majority,
        record::Record,
        roster::{Roster, Seat},
        state::State,
    },
};

/// Why a client gets nothing from the nodes of a cluster that replaced its own.
const STARTED_ANEW: &str = "it belongs to another cluster than when this client began: if \
                            the cluster was started anew, restart this client";

/// What the searches of a client know.
#[derive(Default)]
pub(super) struct Search {
    /// All servers that were asked, by their addresses. They keep their connections.
    servers: HashMap<String, Arc<Node>>,
    /// The cluster of the members, from the first search that found them.
    pub(super) cluster: Option<String>,
    /// When the last search began that no step waited for.
    pub(super) corrected: Option<Moment>,
    /// When the last search began that failed, and its error.
    pub(super) failed: Option<(Moment, Failed)>,
}

/// The answer of a server: its process, and its record.
pub(super) struct Answer {
    server: Arc<Node>,
    seen: Result<(String, Option<Record>), NodeError>,
}

/// A search found no roster with a majority of voters.
#[derive(Clone)]
pub(super) struct Failed {
    pub(super) reason: String,
    /// Whether so many servers have no vote that the others are no majority.
    pub(super) is_rejected: bool,
}

impl Members {
    /// Asks the servers that are known, and those that they name, until a roster has a majority of
    /// voters. Until then, a step could not succeed.
    pub(super) async fn search(
        &self,
        search: &mut Search,
        answers: &mut Vec<Answer>,
    ) -> Option<Roster> {
        // Another process may answer at an address than that of the connection.
        let began = Moment::now();
        let ask =
            |server: Arc<Node>| async move { Answer { seen: server.look(began).await, server } };
        for url in &self.named {
            self.server(search, url);
        }
        let mut asked: HashSet<String> = search.servers.keys().cloned().collect();
        let mut asking: FuturesUnordered<_> = search.servers.values().cloned().map(ask).collect();
        let (mut found, mut late): (Option<Roster>, Option<Moment>) = (None, None);
        loop {
            // The servers that were named get a moment to answer, too. A client may reach a member
            // there, and not at its own address.
            let answer = match late {
                None => asking.next().await,
                Some(late) => timeout(late.remaining(), asking.next()).await.ok().flatten(),
            };
            let Some(answer) = answer else { return found };
            answers.push(answer);
            let cluster = self.cluster(search.cluster.as_deref(), answers);
            let rosters = || rosters_of(cluster, answers);
            let current = rosters().filter(|roster| voters(roster, answers) >= roster.majority());
            if let Some(current) = current.max_by_key(|roster| roster.term) {
                found = Some(current.clone());
                late.get_or_insert_with(|| Moment::now() + self.patience.first_connection());
                let has_answered =
                    |url: &NodeUrl| answers.iter().any(|a| a.server.address() == url.address);
                if self.named.iter().all(has_answered) {
                    return found;
                }
            }
            let direct = rosters().filter(|roster| !self.has_proxies(roster, answers));
            let new: Vec<_> = direct
                .flat_map(|roster| &roster.seats)
                .filter(|seat| asked.insert(seat.address.clone()))
                .collect();
            let urls = new.into_iter().filter_map(|seat| self.url(&seat.address));
            let urls: Vec<_> = urls.collect();
            asking.extend(urls.iter().map(|url| ask(self.server(search, url))));
        }
    }

    /// The cluster to which a majority of the named servers belongs, unless it is known already.
    fn cluster<'a>(&self, known: Option<&'a str>, answers: &'a [Answer]) -> Option<&'a str> {
        // A server that was named twice counts once.
        let mut processes = HashSet::new();
        let named = answers.iter().filter(|answer| self.is_named(&answer.server));
        let named: Vec<_> = named
            .filter(|answer| processes.insert(answer.process()))
            .filter_map(Answer::cluster)
            .collect();
        let is_of_majority = |cluster: &&str| {
            named.iter().filter(|other| *other == cluster).count() >= majority(self.named.len())
        };
        known.or_else(|| named.iter().copied().find(is_of_majority))
    }

    fn is_named(&self, server: &Node) -> bool {
        self.named.iter().any(|url| url.address == server.address())
    }

    /// Returns the server of a URL, with the connection that it has.
    fn server(&self, search: &mut Search, url: &NodeUrl) -> Arc<Node> {
        let new = || Arc::new(Node::new(url.clone(), self.patience, self.background.clone()));
        search.servers.entry(url.address.clone()).or_insert_with(new).clone()
    }

    /// The URL of an address; `None` if it is invalid.
    fn url(&self, address: &str) -> Option<NodeUrl> {
        let named = self.named.iter().find(|url| url.address == address).cloned();
        named.or_else(|| self.named.first()?.at(address))
    }

    /// Whether a client reaches all members of a roster through proxies: none is named by its address,
    /// and one has answered where a proxy was named. Then it must not ask them directly.
    fn has_proxies(&self, roster: &Roster, answers: &[Answer]) -> bool {
        let is_named = |address: &str| self.named.iter().any(|url| url.address == address);
        let has_seat = |answer: &Answer| {
            answer.process().is_some_and(|process| roster.seat_of(process).is_some())
        };
        !roster.seats.iter().any(|seat| is_named(&seat.address))
            && answers.iter().any(|answer| self.is_named(&answer.server) && has_seat(answer))
    }

    /// Returns the server of each seat: where its process has answered, now or before, or else the one at
    /// its address. Of proxies, those at which nobody has answered stand for the other members.
    pub(super) fn servers(
        &self,
        search: &mut Search,
        roster: &Roster,
        answers: &[Answer],
    ) -> Vec<Arc<Node>> {
        let known = self.nodes.borrow().clone();
        let found = roster.seats.iter().map(|seat| {
            let own = answers.iter().filter(|answer| answer.process() == Some(&seat.process));
            // A process may answer at a named proxy, and at its own address.
            let own = own.map(|answer| &answer.server).max_by_key(|server| self.is_named(server));
            // Where it was guessed to be, another process may have answered.
            let answered = |server: &Node| {
                let mut there = answers.iter().filter(|it| it.server.address() == server.address());
                there.any(|answer| answer.seen.is_ok())
            };
            let before = || known.as_ref()?.server_of(&seat.process).filter(|it| !answered(it));
            own.or_else(before).cloned()
        });
        let found: Vec<_> = found.collect();
        let are_proxies = self.has_proxies(roster, answers);
        let is_taken =
            |url: &NodeUrl| found.iter().flatten().any(|server| server.address() == url.address);
        let mut proxies = self.named.iter().filter(|url| are_proxies && !is_taken(url));
        let server = |(seat, found): (&Seat, &Option<Arc<Node>>)| {
            found.clone().unwrap_or_else(|| {
                let url = proxies.next().cloned().or_else(|| self.url(&seat.address));
                // An address that is no URL here leads to a named server, where another process answers.
                self.server(search, &url.unwrap_or_else(|| self.named[0].clone()))
            })
        };
        roster.seats.iter().zip(&found).map(server).collect()
    }

    /// Says why there is no majority.
    pub(super) fn failure(&self, cluster: Option<&str>, answers: &[Answer]) -> Failed {
        let cluster = self.cluster(cluster, answers);
        let is_replaced = self.cluster(None, answers).is_some_and(|now| Some(now) != cluster);
        let error_of = |url: &NodeUrl| {
            let answer = answers.iter().find(|answer| answer.server.address() == url.address);
            let (process, record) = match answer.map(|answer| &answer.seen) {
                None => return Some(NodeError::timed_out()),
                Some(Err(error)) => return Some(error.clone()),
                Some(Ok(seen)) => (&seen.0, seen.1.as_ref()),
            };
            let first = answers.iter().find(|other| other.process() == Some(process))?;
            let is_foreign = cluster.is_some_and(|cluster| {
                record.is_some_and(|record| record.roster.cluster != cluster)
            });
            Some(NodeError::NoVote(match State::determine(process, record, None) {
                _ if is_foreign && is_replaced => STARTED_ANEW.to_owned(),
                _ if first.server.address() != url.address => {
                    let first = first.server.address();
                    format!("it is the same server as {first}: name different servers")
                }
                _ if is_foreign => State::OtherCluster.reason().to_owned(),
                State::Voting => return None,
                other => other.reason().to_owned(),
            }))
        };
        let errors = self.named.iter().filter_map(|url| Some((&*url.address, error_of(url)?)));
        let errors: Vec<_> = errors.collect();
        let rejects = |(_, error): &&(&str, NodeError)| matches!(error, NodeError::NoVote(_));
        let rejecting = errors.iter().filter(rejects).count();
        Failed {
            is_rejected: self.named.len() - rejecting < majority(self.named.len()),
            reason: no_majority(
                self.named.len(),
                errors.iter().map(|(address, error)| (*address, error)),
            ),
        }
    }
}

impl Answer {
    fn process(&self) -> Option<&String> {
        self.seen.as_ref().ok().map(|(process, _)| process)
    }

    fn record(&self) -> Option<&Record> {
        self.seen.as_ref().ok()?.1.as_ref()
    }

    fn cluster(&self) -> Option<&str> {
        self.record().map(|record| record.roster.cluster.as_str())
    }
}

/// The rosters of a cluster.
fn rosters_of<'a>(
    cluster: Option<&'a str>,
    answers: &'a [Answer],
) -> impl Iterator<Item = &'a Roster> {
    let records = answers.iter().filter_map(Answer::record);
    records
        .map(|record| &record.roster)
        .filter(move |roster| cluster.is_some_and(|cluster| roster.cluster == cluster))
}

/// How many of a roster's processes vote for it.
fn voters(roster: &Roster, answers: &[Answer]) -> usize {
    let votes = |process: &String| {
        let mut own = answers.iter().filter(|answer| answer.process() == Some(process));
        own.any(|answer| {
            let record = answer.record();
            record.is_some_and(|record| record.roster == *roster && record.admits(process))
        })
    };
    roster.seats.iter().filter(|seat| votes(&seat.process)).count()
}
