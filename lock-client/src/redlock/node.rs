//! One node: its connection, and whether it can be asked now.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{AsyncConnectionConfig, FromRedisValue, aio::MultiplexedConnection};
use tokio::time::timeout;

use super::{
    membership::Membership, node_error::NodeError, node_urls::NodeUrl, patience::Patience,
    request::Request,
};
use crate::{
    clock::Moment,
    redis::{line::Line, script::Call, transport::Transport, wakeups::Subscriptions},
};

/// How long after a failed connection the next is attempted.
const RECONNECT_PAUSE: Duration = Duration::from_millis(250);
/// How many requests may be unanswered before a node that hangs gets no more releases. A release
/// undoes what the node may still carry out.
const MOST_UNANSWERED: u32 = 1000;

/// One node of a cluster.
pub(super) struct Node {
    url: NodeUrl,
    patience: Patience,
    subscriptions: Subscriptions,
    connection: Mutex<Connection>,
    /// Held by the task that connects: there is one at a time.
    connecting: tokio::sync::Mutex<()>,
}

/// The state of the connection to a node.
enum Connection {
    None,
    Established { voter: Voter, probed: Moment },
    Failed { retry_at: Moment, error: NodeError },
}

/// Whether a node can be asked now.
pub(super) enum Availability {
    /// It can be asked.
    Ready(Voter),
    /// It failed a moment ago, or answers nothing. Nobody waits for it.
    Unavailable(NodeError),
    /// A new connection is needed. The error says what was wrong with the last one, if anything
    /// was.
    NeedsConnection(Option<NodeError>),
}

/// A node that may vote, and the connection to it.
#[derive(Clone)]
pub(super) struct Voter {
    line: Line,
    membership: Arc<Membership>,
    connected: Moment,
}

impl Voter {
    /// The node's membership.
    pub(super) fn membership(&self) -> &Membership {
        &self.membership
    }
}

impl Node {
    pub(super) fn new(url: NodeUrl, patience: Patience) -> Self {
        Self {
            subscriptions: Subscriptions::new(url.server.clone(), patience.0),
            url,
            patience,
            connection: Mutex::new(Connection::None),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn subscriptions(&self) -> Subscriptions {
        self.subscriptions.clone()
    }

    pub(super) fn url(&self) -> &NodeUrl {
        &self.url
    }

    /// The node's address, without a password.
    pub(super) fn address(&self) -> &str {
        &self.url.address
    }

    /// Whether there is no connection, and none has failed just now.
    pub(super) fn is_unconnected(&self) -> bool {
        matches!(*self.connection(), Connection::None)
    }

    /// Connects, and reads whether the node may vote. One task connects at a time. The others wait
    /// for it, unless there was an error before: then they return that error.
    pub(super) async fn connect(
        &self,
        last_error: Option<NodeError>,
        read: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<Membership, NodeError>,
    ) -> Result<Voter, NodeError> {
        let _connecting = match last_error {
            Some(error) => self.connecting.try_lock().map_err(|_| error)?,
            None => timeout(self.patience.connecting(), self.connecting.lock())
                .await
                .map_err(|_| NodeError::timed_out())?,
        };
        match self.availability(Request::Vote) {
            Availability::Ready(voter) => return Ok(voter),
            Availability::Unavailable(error) => return Err(error),
            Availability::NeedsConnection(_) => {}
        }
        let connecting = async {
            // There is one timeout for all nodes together, where they are asked.
            let settings = AsyncConnectionConfig::new().set_response_timeout(None);
            let client = self.url.server.node().await?;
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&settings).await?;
            let membership = Arc::new(read(&mut connection).await?);
            let line = Line::new(Transport::Node(connection));
            Ok(Voter { line, membership, connected: Moment::now() })
        };
        let connected = timeout(self.patience.connecting(), connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(NodeError::timed_out()));
        *self.connection() = match &connected {
            Ok(voter) => Connection::Established { voter: voter.clone(), probed: Moment::now() },
            Err(error) => Connection::Failed {
                retry_at: Moment::now() + RECONNECT_PAUSE,
                error: NodeError::clone(error),
            },
        };
        connected
    }

    /// Runs a script on the node.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        mut voter: Voter,
        call: impl FnOnce(&Membership) -> Call,
    ) -> Result<T, NodeError> {
        let answer = voter.line.run(&call(&voter.membership)).await;
        if let Err(error) = &answer
            && (voter.line.is_broken_by(error)
                || matches!(error.code(), Some("NOVOTE" | "OTHEREPOCH")))
        {
            self.replace_connection(&voter, Connection::None);
        }
        answer.map_err(NodeError::from)
    }

    /// Returns whether the node can be asked now.
    pub(super) fn availability(&self, request: Request) -> Availability {
        match &mut *self.connection() {
            Connection::None => Availability::NeedsConnection(None),
            Connection::Failed { retry_at, error } if retry_at.has_passed() => {
                Availability::NeedsConnection(Some(error.clone()))
            }
            Connection::Failed { error, .. } => Availability::Unavailable(error.clone()),
            Connection::Established { voter, probed } => {
                let silence = voter.line.silence();
                let silent = || NodeError::NoAnswer(format!("no answer for {silence:.1?}"));
                if silence > self.patience.0.longest_silence() {
                    Availability::NeedsConnection(Some(silent()))
                } else if silence <= self.patience.silence() {
                    Availability::Ready(voter.clone())
                } else if request == Request::Release {
                    match voter.line.unanswered_requests() {
                        ..MOST_UNANSWERED => Availability::Ready(voter.clone()),
                        _ => Availability::Unavailable(silent()),
                    }
                } else if probed.elapsed() < self.patience.probe_interval() {
                    Availability::Unavailable(silent())
                } else {
                    *probed = Moment::now();
                    Availability::Ready(voter.clone())
                }
            }
        }
    }

    /// Has the next request connect again, to a node that may vote by then, but not too often. No
    /// round waits for that connection: most of the time, the node still has the same membership.
    pub(super) fn reconnect_later(&self, used: &Voter, error: &NodeError) {
        if used.connected.elapsed() > RECONNECT_PAUSE {
            let (retry_at, error) = (Moment::now(), error.clone());
            self.replace_connection(used, Connection::Failed { retry_at, error });
        }
    }

    /// Replaces a connection that is of no more use, unless there is a newer one.
    fn replace_connection(&self, used: &Voter, replacement: Connection) {
        let mut connection = self.connection();
        if let Connection::Established { voter, .. } = &*connection
            && voter.line.is_same(&used.line)
        {
            *connection = replacement;
        }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().expect("nothing panics while it holds this lock")
    }
}
