//! The states of a node in its cluster: whether it votes, and why it does not.

use serde::Serialize;

use super::{record::Record, roster::Roster};

/// The state of a node in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The node may vote.
    Voting,
    /// The node is a replica, or has one. Its vote must not be relied on.
    Replicated,
    /// The node evicts keys. Its vote must not be relied on.
    Evicting,
    /// The node is part of a Redis Cluster. Its vote must not be relied on.
    Clustered,
    /// The node does not show whether it is fit. Its vote must not be relied on.
    Unknown,
    /// The node rejects all votes: it is read-only, its memory is full, or it is busy.
    Rejecting,
    /// The node waits for its admission.
    Waiting,
    /// A start has prepared the node, and was interrupted.
    Prepared,
    /// The node has given up its vote for a new start, which was interrupted.
    Retired,
    /// The node missed a change of the members.
    Behind,
    /// The node has begun a change of the members, which is not decided yet.
    Ahead,
    /// The node restarted after it was admitted, and may have lost counters.
    Restarted,
    /// Another process has the node's seat.
    Replaced,
    /// The node belongs to another cluster.
    OtherCluster,
    /// The node is no member, and belongs to no other cluster.
    NotAMember,
    /// The node belongs to no cluster, or has lost its data.
    NoCluster,
    /// The node is the same server as another node.
    SameServer,
    /// The node answers, but its record can't be read.
    Unreadable,
    /// The node does not answer.
    Unreachable,
}

impl State {
    /// Compares a process with its node's record, and with the current roster. If that is not known,
    /// the roster in the record counts.
    pub(super) fn determine(
        process: &str,
        record: Option<&Record>,
        current: Option<&Roster>,
    ) -> Self {
        let Some(record) = record else { return Self::NoCluster };
        let current = current.unwrap_or(&record.roster);
        let has_seat = |roster: &Roster| roster.seats.iter().any(|seat| seat.process == process);
        if record.roster.cluster != current.cluster {
            let is_prepared = record.is_prepared_only() && has_seat(&record.roster);
            if is_prepared { Self::Prepared } else { Self::OtherCluster }
        } else if !has_seat(current) {
            match has_seat(&record.roster) {
                false => Self::Restarted,
                true if record.roster.term <= current.term => Self::Replaced,
                // It is prepared for a change.
                true => Self::Waiting,
            }
        } else if record.roster != *current {
            if !has_seat(&record.roster) {
                Self::Waiting
            } else if record.roster.term > current.term {
                Self::Ahead
            } else {
                Self::Behind
            }
        } else if record.admits(process) {
            Self::Voting
        } else if record.retired_from(process).is_some() {
            Self::Retired
        } else {
            Self::Waiting
        }
    }

    /// Reads from its `INFO` why a server must be no node; `None` if it may be one. A process is known by
    /// its `run_id`, and must not lose counters while it has that.
    ///
    /// Each field alone proves its reason. A field that is missing proves nothing: Valkey has no
    /// `redis_mode`, for example.
    pub(super) fn unfit(info: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = info.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(field, _)| *field == name).map(|(_, value)| value)
        };
        let fields = [
            ("cluster_enabled", "0", Self::Clustered),
            ("role", "master", Self::Replicated),
            ("connected_slaves", "0", Self::Replicated),
            ("maxmemory_policy", "noeviction", Self::Evicting),
        ];
        let is_other = |name: &str, fit: &str| field(name).is_some_and(|value| value != fit);
        let other = fields.iter().find(|(name, fit, _)| is_other(name, fit));
        let is_unknown = fields.iter().any(|(name, ..)| field(name).is_none());
        other.map(|(_, _, state)| *state).or(is_unknown.then_some(Self::Unknown))
    }

    /// Why the node has no vote or must not have one, and what to do.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Voting => "it may vote",
            Self::Replicated => {
                "it is a replica, or has one: a failover and the failback after it bring old counters, and \
                 nothing shows that. End the replication, and restart the node"
            }
            Self::Evicting => {
                "it evicts keys when its memory is full, and counters with them: set maxmemory-policy \
                 noeviction in redis.conf, and restart the node"
            }
            Self::Clustered => "it is part of a Redis Cluster: each node must be a single Redis",
            Self::Unknown => {
                "its INFO does not show whether it has replicas, evicts keys, or is part of a Cluster: take \
                 a Redis or a Valkey"
            }
            Self::Rejecting => "it rejects all votes",
            Self::Waiting => {
                "it was not admitted yet: `lock-client node admit --watch` admits it, or `lock-client node \
                 init` again if the start was interrupted"
            }
            Self::Prepared => {
                "a start has prepared it, and was interrupted: run `lock-client node init` again with the \
                 same options, or `lock-client node admit` for it if a majority votes"
            }
            Self::Retired => {
                "it has given up its vote for a new start, which was interrupted: run `lock-client node \
                 init` again with the same options"
            }
            Self::Behind => {
                "it has missed a change of the members: `lock-client node admit --watch` shows it"
            }
            Self::Ahead => {
                "it has begun a change of the members, which is not decided yet: `lock-client node admit \
                 --watch` completes it"
            }
            Self::Restarted => {
                "it restarted after it was admitted, and may have lost counters: run `lock-client node \
                 admit` for it"
            }
            Self::Replaced => "another process has its seat: name that one instead, and stop it",
            Self::OtherCluster => {
                "it belongs to another cluster: name all nodes of one cluster, and no others"
            }
            Self::NotAMember => {
                "it is no member; `lock-client node admit --instead-of` puts it in place of one"
            }
            Self::NoCluster => {
                "it belongs to no cluster, or has lost its data: see `lock-client node admit`, or \
                 `lock-client node init` if no majority votes"
            }
            Self::SameServer => "it is the same server as another node",
            Self::Unreadable => "it answers, but its record can't be read",
            Self::Unreachable => "it does not answer",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Process 3 takes the seat of process 2 in the second term.
    #[test]
    fn state_during_a_change_follows_the_terms() {
        let members = ["1", "2"].map(|process| (process.to_owned(), process.to_owned()));
        let first = Roster::first("c".to_owned(), 1_000, members);
        let second = first.next(1, "3".to_owned(), "3".to_owned());
        let other = first.next(1, "4".to_owned(), "4".to_owned());
        let state = |process: &str, held: &Roster, current: &Roster| {
            State::determine(
                process,
                Some(&Record::new(held.clone(), process, false)),
                Some(current),
            )
        };
        assert_eq!(state("3", &second, &first), State::Waiting, "it is prepared");
        assert_eq!(state("2", &first, &second), State::Replaced);
        assert_eq!(state("4", &other, &second), State::Replaced, "another was decided");
        assert_eq!(state("1", &second, &first), State::Ahead);
        assert_eq!(state("1", &first, &second), State::Behind);
        assert_eq!(state("1", &other, &second), State::Behind, "another was decided");
    }

    #[test]
    fn one_field_proves_each_reason() {
        let valkey = "server_mode:standalone\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n\
                      connected_slaves:0\r\ncluster_enabled:0\r\n";
        assert_eq!(State::unfit(valkey), None);
        for (fit, other, reason) in [
            ("cluster_enabled:0", "cluster_enabled:1", State::Clustered),
            ("role:master", "role:slave", State::Replicated),
            ("connected_slaves:0", "connected_slaves:1", State::Replicated),
            ("maxmemory_policy:noeviction", "maxmemory_policy:allkeys-lru", State::Evicting),
        ] {
            assert_eq!(State::unfit(&valkey.replace(fit, other)), Some(reason));
            assert_eq!(State::unfit(&valkey.replace(fit, "")), Some(State::Unknown));
        }
    }
}
