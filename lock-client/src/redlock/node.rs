//! One server: its connection, and whether it can be asked now.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{AsyncConnectionConfig, FromRedisValue, aio::MultiplexedConnection};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::{
    node_error::NodeError,
    node_urls::NodeUrl,
    patience::{Patience, Request},
    record::{Record, read_process},
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

/// One server, which may be a node of the cluster.
pub(super) struct Node {
    url: NodeUrl,
    patience: Patience,
    background: TaskTracker,
    subscriptions: Subscriptions,
    connection: Mutex<Connection>,
    /// Held by the task that connects: there is one at a time.
    connecting: tokio::sync::Mutex<()>,
    checking: tokio::sync::Mutex<()>,
}

/// The state of the connection to a node.
enum Connection {
    None,
    /// If it is silent for long, another connection is attempted. It is kept until there is another, because it may
    /// answer again.
    Established {
        process: Arc<Process>,
        probed: Moment,
        retry_at: Moment,
    },
    Failed {
        retry_at: Moment,
        error: NodeError,
    },
}

/// Whether a node can be asked now.
enum Availability {
    /// It can be asked.
    Ready(Arc<Process>),
    /// It failed a moment ago, or answers nothing. Nobody waits for it.
    Unavailable(NodeError),
    /// A new connection is needed. The error says what was wrong with the last one, if anything
    /// was.
    NeedsConnection(Option<NodeError>),
}

/// The process of a server, and the connection to it. A restart ends the connection.
pub(super) struct Process {
    pub(super) run_id: String,
    line: Line,
    /// The same connection, for what is no script.
    connection: MultiplexedConnection,
    connected: Moment,
}

impl Node {
    pub(super) fn new(url: NodeUrl, patience: Patience, background: TaskTracker) -> Self {
        Self {
            subscriptions: Subscriptions::new(url.server.clone(), patience.0),
            url,
            patience,
            background,
            connection: Mutex::new(Connection::None),
            connecting: tokio::sync::Mutex::default(),
            checking: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn subscriptions(&self) -> Subscriptions {
        self.subscriptions.clone()
    }

    /// The node's address, without a password.
    pub(super) fn address(&self) -> &str {
        &self.url.address
    }

    /// Whether there is no connection, and none has failed just now.
    pub(super) fn is_unconnected(&self) -> bool {
        matches!(*self.connection(), Connection::None)
    }

    /// Returns the server's process, if it can be asked now. Connects if needed.
    pub(super) async fn connected(
        self: &Arc<Self>,
        request: Request,
    ) -> Result<Arc<Process>, NodeError> {
        match self.availability(request) {
            Availability::Ready(process) => Ok(process),
            Availability::Unavailable(error) => Err(error),
            Availability::NeedsConnection(last_error) => {
                let node = self.clone();
                // It continues if this caller stops waiting: later callers use the connection, too.
                let connecting =
                    self.background.spawn(async move { node.connect(last_error).await });
                let ended = |_| Err(NodeError::NoAnswer("the runtime has ended".to_owned()));
                connecting.await.unwrap_or_else(ended)
            }
        }
    }

    /// Connects, and reads which process the server is. One task connects at a time. The others wait
    /// for it, unless there was an error before: then they return that error.
    async fn connect(&self, last_error: Option<NodeError>) -> Result<Arc<Process>, NodeError> {
        let _connecting = match last_error {
            Some(error) => self.connecting.try_lock().map_err(|_| error)?,
            None => timeout(self.patience.connecting(), self.connecting.lock())
                .await
                .map_err(|_| NodeError::timed_out())?,
        };
        match self.availability(Request::Vote) {
            Availability::Ready(process) => return Ok(process),
            Availability::Unavailable(error) => return Err(error),
            Availability::NeedsConnection(_) => {}
        }
        let connecting = async {
            // The time to connect is limited below. There is one timeout for all nodes together, where they
            // are asked.
            let settings = AsyncConnectionConfig::new();
            let settings = settings.set_connection_timeout(None).set_response_timeout(None);
            let client = self.url.server.node().await?;
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&settings).await?;
            let run_id = read_process(&mut connection).await?;
            let line = Line::new(Transport::Node(connection.clone()));
            Ok(Arc::new(Process { run_id, line, connection, connected: Moment::now() }))
        };
        let connected = timeout(self.patience.connecting(), connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(NodeError::timed_out()));
        let (mut connection, now) = (self.connection(), Moment::now());
        match (&connected, &mut *connection) {
            (Ok(process), connection) => {
                let process = process.clone();
                *connection = Connection::Established { process, probed: now, retry_at: now };
            }
            (Err(_), Connection::Established { retry_at, .. }) => *retry_at = now + RECONNECT_PAUSE,
            (Err(error), connection) => {
                let retry_at = now + RECONNECT_PAUSE;
                *connection = Connection::Failed { retry_at, error: error.clone() };
            }
        }
        drop(connection);
        connected
    }

    /// Reads which process the server is, and its record, over a connection since then. Another process
    /// may answer at the address now.
    pub(super) async fn look(
        self: &Arc<Self>,
        since: Moment,
    ) -> Result<(String, Option<Record>), NodeError> {
        self.disconnect_if(|process| process.connected < since);
        let process = self.connected(Request::Vote).await?;
        let mut connection = process.connection.clone();
        let read = timeout(self.patience.connecting(), Record::read(&mut connection)).await;
        let read = read.map_err(|_| NodeError::timed_out())?;
        if let Err(error) = &read
            && process.line.is_broken_by(error)
        {
            self.disconnect(&process.line);
        }
        Ok((process.run_id.clone(), read?))
    }

    /// Checks the connection in the background. If it is lost, makes another one. Does nothing while an earlier check
    /// goes on. Nobody who waits for what runs in the background waits for this: it undoes nothing.
    pub(super) fn check(self: &Arc<Self>) {
        let node = self.clone();
        tokio::spawn(async move { node.check_connection().await });
    }

    async fn check_connection(self: &Arc<Self>) {
        let Ok(_checking) = self.checking.try_lock() else { return };
        let process = match self.connected(Request::Vote).await {
            Ok(process) => process,
            // There is no other connection. The silent one may answer again.
            Err(_) => match &*self.connection() {
                Connection::Established { process, .. } => process.clone(),
                _ => return,
            },
        };
        let ping = timeout(self.patience.connecting(), process.line.clone().ping()).await;
        if let Ok(Err(error)) = ping
            && process.line.is_broken_by(&error)
        {
            self.disconnect(&process.line);
            // If it fails, it is attempted again at the next check.
            let _ = self.connected(Request::Vote).await;
        }
    }

    /// Runs a script on the server.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        process: &Process,
        call: &Call,
    ) -> Result<T, NodeError> {
        let answer = process.line.clone().run(call).await;
        if let Err(error) = &answer
            && process.line.is_broken_by(error)
        {
            self.disconnect(&process.line);
        }
        answer.map_err(NodeError::from)
    }

    /// Returns whether the server can be asked now.
    fn availability(&self, request: Request) -> Availability {
        match &mut *self.connection() {
            Connection::None => Availability::NeedsConnection(None),
            Connection::Failed { retry_at, error } if retry_at.has_passed() => {
                Availability::NeedsConnection(Some(error.clone()))
            }
            Connection::Failed { error, .. } => Availability::Unavailable(error.clone()),
            Connection::Established { process, probed, retry_at } => {
                let silence = process.line.silence();
                let silent = || NodeError::NoAnswer(format!("no answer for {silence:.1?}"));
                if silence > self.patience.0.longest_silence() {
                    match retry_at.has_passed() {
                        true => Availability::NeedsConnection(Some(silent())),
                        false => Availability::Unavailable(silent()),
                    }
                } else if silence <= self.patience.silence() {
                    Availability::Ready(process.clone())
                } else if request == Request::Release {
                    match process.line.unanswered_requests() {
                        ..MOST_UNANSWERED => Availability::Ready(process.clone()),
                        _ => Availability::Unavailable(silent()),
                    }
                } else if probed.elapsed() < self.patience.probe_interval() {
                    Availability::Unavailable(silent())
                } else {
                    *probed = Moment::now();
                    Availability::Ready(process.clone())
                }
            }
        }
    }

    /// Drops a connection that is of no more use, unless there is a newer one.
    fn disconnect(&self, used: &Line) {
        self.disconnect_if(|process| process.line.is_same(used));
    }

    fn disconnect_if(&self, is_useless: impl FnOnce(&Process) -> bool) {
        let mut connection = self.connection();
        if let Connection::Established { process, .. } = &*connection
            && is_useless(process)
        {
            *connection = Connection::None;
        }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().expect("nothing panics while it holds this lock")
    }
}
