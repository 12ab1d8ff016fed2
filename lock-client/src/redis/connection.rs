//! The connection that all requests of a client share.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use fence::Holder;
use redis::{
    ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, aio::MultiplexedConnection,
};
use tokio::{sync::Mutex, time::sleep};

use super::{
    keys::Keys, line::Line, script::Call, server::Server, settings::TimeLimits,
    transport::Transport,
};
use crate::{clock::Moment, keeper::Keeper, kept_for::KeptFor, retry::pauses, ttl::Ttl};

/// How often the connection is used at least while locks are held. So its loss is noticed, and neither
/// a proxy nor the server takes it for idle.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// For how many answer time-outs the connection is kept for a lock that is taken over, before its renewal.
const ADOPTION: u32 = 8;

/// The connection that all requests of a client share. It is made when it is first needed. It is
/// replaced when it is lost, is silent for too long or after an idle time, or leads to a server that
/// no longer takes writes.
///
/// While locks are held, a lost connection is made again at once. A renewal may find no free connection: other
/// clients may have all of the server's. This is not done for a Cluster: where one node fails, the `redis`
/// crate connects to all anew, and so a check of one node would lose the connections to the others.
pub(super) struct Connection {
    server: Arc<Server>,
    limits: TimeLimits,
    current: Mutex<Option<Line>>,
    /// Held while an idle connection is replaced, so that one request does it.
    replacing: Mutex<()>,
    kept_for: KeptFor,
    /// The task that keeps the connection for held locks.
    keeper: Keeper,
}

impl Connection {
    pub(super) fn new(server: Arc<Server>, limits: TimeLimits) -> Arc<Self> {
        let (current, replacing, kept_for, keeper) = Default::default();
        Arc::new(Self { server, limits, current, replacing, kept_for, keeper })
    }

    pub(super) fn kept_for(&self) -> &KeptFor {
        &self.kept_for
    }

    /// Keeps the connection for a lock that was granted.
    pub(super) fn keep_for(self: &Arc<Self>, holder: &Holder, ttl: Ttl) {
        if !self.server.is_cluster() {
            self.kept_for.begin(holder, ttl);
            self.start_keeper();
        }
    }

    /// Keeps the connection for a lock that was renewed, unless it was left to another client meanwhile.
    pub(super) fn keep_on_for(self: &Arc<Self>, holder: &Holder, ttl: Ttl) {
        if !self.server.is_cluster() {
            self.kept_for.extend(holder, ttl);
            self.start_keeper();
        }
    }

    /// Keeps the connection for a lock that is taken over. The renewal that follows may fail.
    pub(super) fn adopt(&self, holder: &Holder) {
        if !self.server.is_cluster() {
            self.kept_for.adopt(holder, Moment::now() + self.limits.answer * ADOPTION);
        }
    }

    fn start_keeper(self: &Arc<Self>) {
        self.keeper.start(|| keep(Arc::downgrade(self)));
    }

    pub(super) async fn run<T: FromRedisValue>(&self, call: &Call) -> RedisResult<T> {
        let mut line = self.line().await?;
        let answer = line.run(call).await;
        self.replace_if_lost(&line, &answer).await;
        answer
    }

    /// Checks the connection, or makes one.
    async fn check(&self) -> RedisResult<()> {
        let mut line = match self.line().await {
            Ok(line) => line,
            // There is no other connection. The silent one may answer again.
            Err(error) => self.current.lock().await.clone().ok_or(error)?,
        };
        let answer = line.ping().await;
        self.replace_if_lost(&line, &answer).await;
        match answer {
            // The right to ask is not needed.
            Err(error) if error.code().is_some() => Ok(()),
            answer => answer,
        }
    }

    async fn replace_if_lost<T>(&self, line: &Line, answer: &RedisResult<T>) {
        let Err(error) = answer else { return };
        if line.is_broken_by(error) {
            self.discard(line).await;
        } else if error.is_timeout() && line.is_silent_since_idle() {
            // Boxed, because it is rare.
            Box::pin(self.replace_idle(line)).await;
        }
    }

    /// Replaces a connection whose first request after an idle time was not answered. A NAT may
    /// have dropped it in silence.
    ///
    /// An acquire that was sent over the idle connection is undone over the new one, and must not be
    /// executed after that. So the idle connection stays until the server answers over the new one:
    /// by then, the server has executed all that had reached it before. If the idle connection
    /// answers first, it stays for good. Only a request that the network still delays may come
    /// later. Over a connection that answered just now, such a delay is likelier than a drop: that
    /// connection is not replaced here.
    async fn replace_idle(&self, idle: &Line) {
        let Ok(_replacing) = self.replacing.try_lock() else { return };
        if let Ok(transport) = self.connect().await {
            let mut current = self.current.lock().await;
            if current.as_ref().is_some_and(|current| current.is_same(idle))
                && idle.is_silent_since_idle()
            {
                *current = Some(Line::new(transport));
            }
        }
    }

    async fn line(&self) -> RedisResult<Line> {
        let mut current = self.current.lock().await;
        match &*current {
            Some(line) if line.silence() <= self.limits.longest_silence() => Ok(line.clone()),
            _ => {
                // A silent connection stays until there is another. The future is boxed, because
                // thousands of requests may be under way and few of them connect.
                let transport = Box::pin(self.connect()).await?;
                Ok(current.insert(Line::new(transport)).clone())
            }
        }
    }

    /// Connects, but rejects a server that is a part of something larger.
    async fn connect(&self) -> RedisResult<Transport> {
        let transport = self.server.connect(self.limits).await?;
        if let Some(connection) = transport.single_node() {
            reject_part(connection.clone()).await?;
        }
        Ok(transport)
    }

    async fn discard(&self, line: &Line) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| current.is_same(line)) {
            *current = None;
        }
    }
}

/// Checks the connection as long as locks are held.
async fn keep(connection: Weak<Connection>) {
    let (mut pause, mut backoff) = (CHECK_INTERVAL, pauses(CHECK_INTERVAL));
    loop {
        sleep(pause).await;
        let Some(connection) = connection.upgrade() else { return };
        if connection.keeper.end_if(|| !connection.kept_for.are_held()) {
            return;
        }
        pause = match connection.check().await {
            Ok(()) => {
                backoff = pauses(CHECK_INTERVAL);
                CHECK_INTERVAL
            }
            // The first pause is short, because a lost connection is made again by the next check.
            Err(error) => {
                tracing::debug!(%error, "the connection for held locks is lost");
                backoff.next().expect("the pauses never end")
            }
        };
    }
}

/// Rejects a node of Redlock, because a lock on one node excludes nobody, and a node of a Cluster,
/// because it has only some of the locks. A Sentinel has none.
///
/// A node of Redlock that just restarted may answer `-LOADING`, which hides that it is one. So every
/// error fails the connection, except one.
async fn reject_part(mut connection: MultiplexedConnection) -> RedisResult<()> {
    let rejected = |reason| Err(RedisError::from((ErrorKind::InvalidClientConfig, reason)));
    let mut exist = redis::cmd("EXISTS");
    // A node of a Cluster rejects two keys of different slots, whichever slots it has.
    exist.arg(Keys::NODE).arg(Keys::NOTHING);
    match exist.query_async::<u64>(&mut connection).await.map_err(|error| (error.kind(), error)) {
        Ok(0) => Ok(()),
        Ok(_) => rejected("this is a node of Redlock: name all nodes of its cluster"),
        Err((ErrorKind::Server(ServerErrorKind::CrossSlot | ServerErrorKind::ClusterDown), _)) => {
            rejected("this is a node of a Redis Cluster: name it by redis+cluster://")
        }
        // A client without the right to ask continues.
        Err((ErrorKind::Server(ServerErrorKind::NoPerm), _)) => Ok(()),
        Err((_, error)) if error.code().is_some() && is_sentinel(&mut connection).await => {
            rejected("this is a Sentinel, which keeps no locks: name it by redis+sentinel://")
        }
        Err((_, error)) => Err(error),
    }
}

async fn is_sentinel(connection: &mut MultiplexedConnection) -> bool {
    let role = redis::cmd("ROLE").query_async::<redis::Value>(connection).await;
    matches!(role.map(redis::from_redis_value), Ok(Ok(redis::Role::Sentinel { .. })))
}
