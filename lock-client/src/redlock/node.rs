//! One node: whether it can be asked, and what it answers.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{AsyncConnectionConfig, FromRedisValue, RedisError, aio::MultiplexedConnection};
use tokio::time::timeout;

use super::membership::Membership;
use crate::clock::Moment;
use crate::redis::Server;
use crate::redis::line::Line;
use crate::redis::script::Call;
use crate::redis::transport::Transport;
use crate::redis::{InvalidReply, LONGEST_SILENCE, is_passing};

/// How long a node may leave everything unanswered until it is asked less: what is sent to one that
/// hangs piles up, and is done late.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often a node that doesn't answer is asked for its vote all the same.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// How long it may take to connect to a node, and to learn whether it may vote.
const CONNECTING_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a node is left alone that could not be connected to, or has no vote.
const AWAY: Duration = Duration::from_millis(250);
/// How many requests may wait at a node that doesn't answer, for what it may yet do to be undone.
const MOST_UNANSWERED: u32 = 1000;

/// What nodes are to be asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asking {
    /// Its vote, which is of use only if it answers soon.
    Vote,
    /// To release what it may have given, or may yet give: of use whenever it comes to it.
    Release,
}

impl Asking {
    /// How long all nodes together have for their answers.
    pub(super) fn patience(self) -> Duration {
        match self {
            Self::Vote => Duration::from_millis(500),
            Self::Release => Duration::from_secs(2),
        }
    }
}

/// One of the nodes of a cluster.
pub(super) struct Node {
    server: Arc<Server>,
    address: String,
    presence: Mutex<Presence>,
    /// One connects at a time.
    connecting: tokio::sync::Mutex<()>,
}

/// What is known of a node.
enum Presence {
    Unknown,
    Voter { voter: Voter, probed: Moment },
    Away { until: Moment, why: Absence },
}

/// A node that may vote, and how to ask it.
#[derive(Clone)]
pub(super) struct Voter {
    line: Line,
    membership: Arc<Membership>,
}

impl Voter {
    /// The cluster that it belongs to.
    pub(super) fn cluster(&self) -> &str {
        &self.membership.cluster
    }
}

/// Why a node gives no answer that counts.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Absence {
    /// There was no answer. What was asked for may have been done.
    #[error("{0}")]
    NoAnswer(String),
    /// It has no vote, or refuses.
    #[error("{0}")]
    NoVote(String),
}

impl Absence {
    pub(super) fn silent() -> Self {
        Self::NoAnswer("no answer in time".to_owned())
    }
}

impl From<RedisError> for Absence {
    fn from(error: RedisError) -> Self {
        match (error.code(), error.detail()) {
            // Our scripts say it themselves.
            (Some("NOVOTE" | "FENCED"), Some(why)) => Self::NoVote(why.to_owned()),
            _ if is_passing(&error) => Self::NoAnswer(error.to_string()),
            _ => Self::NoVote(error.to_string()),
        }
    }
}

impl From<InvalidReply> for Absence {
    fn from(invalid: InvalidReply) -> Self {
        Self::NoVote(invalid.to_string())
    }
}

impl Node {
    pub(super) fn at(server: Arc<Server>, address: String) -> Self {
        Self {
            server,
            address,
            presence: Mutex::new(Presence::Unknown),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    /// Where it is, without a password.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Whether it hasn't been connected to yet.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(*self.presence(), Presence::Unknown)
    }

    /// Connects, and learns whether it may vote. One does that at a time; nobody waits for a node that
    /// there was trouble with.
    pub(super) async fn connect(
        &self,
        suspected: Option<Absence>,
        learn: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<Membership, Absence>,
    ) -> Result<Voter, Absence> {
        let _connecting = match suspected {
            Some(why) => self.connecting.try_lock().map_err(|_| why)?,
            None => timeout(CONNECTING_TIMEOUT, self.connecting.lock())
                .await
                .map_err(|_| Absence::silent())?,
        };
        match self.known(Asking::Vote) {
            Known::Voter(voter) => return Ok(voter),
            Known::Away(why) => return Err(why),
            Known::Stale(_) => {}
        }
        let connecting = async {
            // Who asks for something looks to the time himself, for all nodes at once.
            let settings = AsyncConnectionConfig::new().set_response_timeout(None);
            let client = self.server.node().await?;
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&settings).await?;
            let membership = Arc::new(learn(&mut connection).await?);
            Ok(Voter { line: Line::new(Transport::Node(connection)), membership })
        };
        let connected = timeout(CONNECTING_TIMEOUT, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(Absence::silent()));
        *self.presence() = match &connected {
            Ok(voter) => Presence::Voter { voter: voter.clone(), probed: Moment::now() },
            Err(why) => Presence::Away { until: Moment::now() + AWAY, why: Absence::clone(why) },
        };
        connected
    }

    /// Runs a script on a node that may vote.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        mut voter: Voter,
        call: impl FnOnce(&Membership) -> Call,
    ) -> Result<T, Absence> {
        let answer = voter.line.run(&call(&voter.membership)).await;
        if let Err(error) = &answer
            && (voter.line.is_broken_by(error) || error.code() == Some("NOVOTE"))
        {
            self.forget(&voter);
        }
        answer.map_err(Absence::from)
    }

    /// What is known of it.
    pub(super) fn known(&self, asking: Asking) -> Known {
        match &mut *self.presence() {
            Presence::Unknown => Known::Stale(None),
            Presence::Away { until, why } if until.has_passed() => Known::Stale(Some(why.clone())),
            Presence::Away { why, .. } => Known::Away(why.clone()),
            Presence::Voter { voter, probed } => {
                let silence = voter.line.silence();
                let silent = || Absence::NoAnswer(format!("no answer for {silence:.1?}"));
                if silence > LONGEST_SILENCE {
                    Known::Stale(Some(silent()))
                } else if silence <= PATIENCE {
                    Known::Voter(voter.clone())
                } else if asking == Asking::Release {
                    match voter.line.unanswered_requests() {
                        ..MOST_UNANSWERED => Known::Voter(voter.clone()),
                        _ => Known::Away(silent()),
                    }
                } else if probed.elapsed() < PROBE_INTERVAL {
                    Known::Away(silent())
                } else {
                    *probed = Moment::now();
                    Known::Voter(voter.clone())
                }
            }
        }
    }

    /// Forgets a line that is of no more use, unless there is a newer one.
    fn forget(&self, used: &Voter) {
        let mut presence = self.presence();
        if matches!(&*presence, Presence::Voter { voter, .. } if voter.line.is_same(&used.line)) {
            *presence = Presence::Unknown;
        }
    }

    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().expect("nothing panics while it has this")
    }
}

/// What is known of a node.
pub(super) enum Known {
    /// It can be asked now.
    Voter(Voter),
    /// It was away a moment ago, or leaves everything unanswered: nobody waits for it.
    Away(Absence),
    /// It is to be connected to. There may have been trouble with it.
    Stale(Option<Absence>),
}
