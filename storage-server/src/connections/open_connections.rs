//! The open connections, and which of them must be closed.

use std::{
    cmp::Reverse,
    collections::HashMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::Router;
use hyper_util::{rt::TokioExecutor, server::conn::auto};
use prometheus_client::metrics::gauge::Gauge;
use tokio::{
    net::TcpStream,
    task::{AbortHandle, Id, JoinSet},
};
use tokio_util::sync::CancellationToken;

use super::{
    activity::{Activity, Idle, Overdue},
    client_address::ClientAddress,
    serving::serve_connection,
};
use crate::{
    cut_offs::{CutOff, CutOffs},
    memory_budget::MemoryBudget,
    tls::Tls,
};

/// How long a connection may have no request in flight. This covers silence from the start, heads
/// that are half sent, and idle connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a client may read nothing of its answer.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(20);
/// The same, while memory for answers is short.
const UNREAD_TIMEOUT_WHILE_SHORT: Duration = Duration::from_secs(2);

/// All connections. Only the accept loop uses it.
pub(super) struct OpenConnections {
    pub(super) serving: JoinSet<()>,
    pub(super) open: HashMap<Id, Connection>,
    /// The idle connections that are closed next, so that others can connect, and since when each is idle.
    /// The last one is closed first.
    pub(super) next_to_close: Vec<(Instant, Id)>,
    /// How many there are, for the metrics.
    pub(super) gauge: Gauge,
    pub(super) max: usize,
    pub(super) http: auto::Builder<TokioExecutor>,
    pub(super) tls: Option<Tls>,
    pub(super) router: Router,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) cut_offs: Arc<CutOffs>,
    pub(super) draining: CancellationToken,
}

pub(super) struct Connection {
    activity: Arc<Activity>,
    task: AbortHandle,
}

impl OpenConnections {
    /// Whether another connection may be served. If not, closes an idle one, which needs a moment to
    /// end.
    pub(super) fn accept_another(&mut self) -> bool {
        let is_below_limit = self.serving.len() < self.max;
        let one_is_ending = self.open.len() < self.serving.len();
        let is_crowded = !is_below_limit && !one_is_ending && !self.close_idle();
        self.budget.set_crowded(is_crowded);
        is_below_limit
    }

    pub(super) fn start(&mut self, stream: TcpStream, client: SocketAddr) {
        let activity = Activity::new(Instant::now());
        let serving = serve_connection(
            (stream, ClientAddress(client.ip().to_canonical())),
            activity.clone(),
            self.http.clone(),
            self.tls.clone(),
            self.router.clone(),
            self.cut_offs.clone(),
            self.draining.clone(),
        );
        let task = self.serving.spawn(serving);
        self.open.insert(task.id(), Connection { activity, task });
        self.gauge.inc();
    }

    pub(super) fn forget(&mut self, id: Id) {
        self.open.remove(&id);
        self.gauge.dec();
    }

    pub(super) fn close_overdue(&mut self) {
        let now = Instant::now();
        let unread_timeout = if self.budget.is_short_of_answers() {
            UNREAD_TIMEOUT_WHILE_SHORT
        } else {
            UNREAD_TIMEOUT
        };
        self.open.retain(|_, Connection { activity, task }| {
            let overdue = activity.close_if_overdue(now, IDLE_TIMEOUT, unread_timeout);
            match overdue {
                None => return true,
                Some(Overdue::Idle) => {}
                Some(Overdue::Silent) => self.cut_offs.count(CutOff::Silent),
                Some(Overdue::Unread) => self.cut_offs.count(CutOff::UnreadAnswer),
            }
            task.abort();
            false
        });
    }

    /// Closes an idle connection. Returns whether there was one.
    ///
    /// Those that never had a request and those that have had one are two groups. Of the larger
    /// one, the connection that has been idle the longest is closed. So however many silent connections come, clients
    /// that pause between requests keep about half of all connections. And such clients keep nobody out.
    pub(super) fn close_idle(&mut self) -> bool {
        if self.close_listed() {
            return true;
        }
        let (mut silent, mut served) = (Vec::new(), Vec::new());
        for (&id, Connection { activity, .. }) in &self.open {
            if let Some(Idle { since, has_served }) = activity.idle() {
                if has_served { &mut served } else { &mut silent }.push((since, id));
            }
        }
        let excess = silent.len().abs_diff(served.len());
        let mut group = if silent.len() >= served.len() { silent } else { served };
        group.sort_unstable_by_key(|&(since, _)| Reverse(since));
        // Once half of the excess is closed, the groups may be equal. But a sixteenth is closed at least before
        // they are compared again: a comparison looks at all connections.
        let listed = (excess / 2).max(group.len() / 16).max(1);
        self.next_to_close = group.split_off(group.len().saturating_sub(listed));
        self.close_listed()
    }

    /// Closes the first of the listed connections that still is idle.
    fn close_listed(&mut self) -> bool {
        while let Some((since, id)) = self.next_to_close.pop() {
            let connection = self.open.get(&id);
            if connection.is_some_and(|connection| connection.activity.close_if_idle(since)) {
                let connection = self.open.remove(&id).expect("it was just there");
                connection.task.abort();
                self.cut_offs.count(CutOff::Displaced);
                return true;
            }
        }
        false
    }
}
