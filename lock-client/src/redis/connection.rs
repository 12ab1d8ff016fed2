//! The connection that all requests of a client share.

use std::{sync::Arc, time::Duration};

use redis::{ErrorKind, FromRedisValue, RedisError, RedisResult};
use tokio::sync::Mutex;

use super::{
    keys::Keys,
    line::{Line, Link},
    script::Call,
    server::Server,
};
use crate::backend::BackendError;

/// For how long a line may leave everything unanswered, until another is tried. It is longer than an
/// acquire and its undoing wait for their answers: over another line, a release would overtake the
/// acquire that it is to undo, if the server goes on.
pub(crate) const LONGEST_SILENCE: Duration = Duration::from_secs(5);

/// The connection that all requests of a client share. It is made when it is first needed, and again
/// when it was lost, has been silent for too long, or leads to a server that doesn't take writes any
/// more.
#[derive(Clone)]
pub(super) struct Connection {
    server: Arc<Server>,
    current: Arc<Mutex<Option<Line>>>,
}

impl Connection {
    pub(super) fn new(server: Arc<Server>) -> Self {
        Self { server, current: Arc::default() }
    }

    /// Runs a script.
    pub(super) async fn run<T: FromRedisValue>(&self, call: &Call) -> Result<T, BackendError> {
        let mut line = self.line().await?;
        let answer = line.run(call).await;
        if let Err(error) = &answer
            && line.is_over(error)
        {
            self.give_up(&line).await;
        }
        Ok(answer?)
    }

    async fn line(&self) -> RedisResult<Line> {
        let mut current = self.current.lock().await;
        match &*current {
            Some(line) if line.silence() <= LONGEST_SILENCE => Ok(line.clone()),
            _ => {
                // Until there is another, the silent one stays. What is rare is boxed, so that thousands
                // of requests under way don't each have the memory for it.
                let link = Box::pin(self.connect()).await?;
                Ok(current.insert(Line::over(link)).clone())
            }
        }
    }

    /// Connects, to no node of Redlock: its lock alone is no lock.
    async fn connect(&self) -> RedisResult<Link> {
        let link = self.server.connect().await?;
        if let Link::Node(connection) = &link {
            let mut ttl = redis::cmd("PTTL");
            ttl.arg(Keys::NODE);
            // Where it may not be asked for, it is for all we know none.
            let has_none = ttl.query_async::<i64>(&mut connection.clone()).await.unwrap_or(-2);
            if has_none != -2 {
                return Err(RedisError::from((
                    ErrorKind::InvalidClientConfig,
                    "this is a node of Redlock: all nodes of its cluster are to be named",
                )));
            }
        }
        Ok(link)
    }

    /// Gives a line up, unless there is a newer one.
    async fn give_up(&self, line: &Line) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| current.is(line)) {
            *current = None;
        }
    }
}
