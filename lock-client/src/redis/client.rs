//! Locks in Redis, as a backend.

use std::{sync::Arc, time::Duration};

use fence::{Holder, ResourceName, Token};
use redis::{FromRedisValue, Value, from_redis_value};

use super::{
    connection::Connection,
    failure::{failed, rejected},
    keys::Keys,
    names,
    reply::{self, InvalidReply, StatusReply, remaining_time, token_of_owner, valid_token},
    script::{ACQUIRE, Call, REISSUE, RELEASE, RENEW, STATUS},
    server::Server,
    settings::TimeLimits,
    wakeups::Subscriptions,
};
use crate::{
    InvalidUrl,
    backend::{
        Attempt, Backend, BackendError, BackendFuture, Contention, HeldNames, Ownership, Status,
        Wakeups, debug_by_address,
    },
    clock::{Moment, unix_millis},
    label::printable,
    terms::{Order, QUEUE_PATIENCE},
    ttl::Ttl,
};

/// Locks in Redis.
#[derive(Clone)]
pub struct Redis {
    server: Arc<Server>,
    connection: Arc<Connection>,
    subscriptions: Subscriptions,
    limits: TimeLimits,
    retention_ms: u64,
    label: String,
}

debug_by_address!(Redis);

impl Redis {
    /// Makes a client of the Redis at a URL. It connects when it is first used.
    ///
    /// The URL is `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, or begins with `redis+sentinel`,
    /// `redis+cluster` or `redis+unix`. With the feature `tls`, those with `rediss` encrypt all connections.
    /// The section "Redis as you run it" of the README has their forms and settings. All parts of a URL are
    /// percent-encoded.
    ///
    /// Name all Sentinels. Name several nodes of a Cluster, because waiters subscribe at a named one.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used, needs a feature that was not compiled, or names
    /// a file that can't be read.
    pub fn open(url: &str) -> Result<Self, InvalidUrl> {
        let (server, limits) = (Arc::new(Server::open(url)?), TimeLimits::default());
        Ok(Self {
            connection: Connection::new(server.clone(), limits),
            subscriptions: Subscriptions::new(server.clone(), limits),
            server,
            limits,
            retention_ms: 0,
            label: String::new(),
        })
    }

    /// Waits this long for each answer of Redis, instead of half a second. It suits a Redis that is
    /// far away: take twice the time of a round trip, or more. The limits for connecting, subscribing
    /// and repeating grow with it. Two limits don't: a connection on which nothing is acknowledged
    /// for 2 seconds is replaced, and a fair waiter is removed after 3 seconds of silence. A lease
    /// whose ttl is not several times longer is lost with one lost reply.
    ///
    /// It is 1 millisecond at least, and 1 hour at most.
    pub fn answer_within(self, timeout: Duration) -> Self {
        let limits = TimeLimits::new(timeout);
        Self {
            connection: Connection::new(self.server.clone(), limits),
            subscriptions: Subscriptions::new(self.server.clone(), limits),
            limits,
            ..self
        }
    }

    /// Keeps the counter of a name for this long after the name was last locked, instead of for
    /// ever. It suits names that are many and short-lived, such as order numbers.
    ///
    /// # Safety of tokens
    /// A counter that is gone starts again at the client's Unix time in milliseconds. The section "Names
    /// that are used for a while" of the README says on which conditions this is above every token that it
    /// ever issued. Otherwise the storage rejects the lower token. A holder that has not claimed yet
    /// continues with a higher one. Nothing is lost, but work may have to be repeated.
    pub fn keep_counters_for(self, retention: Duration) -> Self {
        // Lua represents these numbers exactly. The limit is 285 thousand years.
        let millis = retention.as_millis().clamp(1, 1 << 53);
        Self { retention_ms: millis.try_into().expect("it is at most 2^53"), ..self }
    }

    /// Sets a label, such as a host's name, that [`Locks::status`](crate::Locks::status) shows beside
    /// the locks that this client holds. It proves nothing. Control characters become spaces, and a
    /// label is cut after 200 characters.
    pub fn label(self, label: &str) -> Self {
        Self { label: printable(label), ..self }
    }

    async fn run<T: FromRedisValue>(&self, call: Call) -> Result<T, BackendError> {
        self.connection.run(&call).await.map_err(|error| failed(&self.server, &error))
    }

    /// Reports the reply of a script that may have changed something: the outcome is unknown.
    fn unreadable(&self, invalid: &InvalidReply) -> BackendError {
        rejected(&self.server, invalid).after_a_change()
    }

    /// Parses the reply of a script that compares the ownership, and changes the owner's lock.
    fn token_of_owner(&self, number: i64) -> Result<Option<Token>, BackendError> {
        token_of_owner(number).map_err(|invalid| self.unreadable(&invalid))
    }
}

impl Backend for Redis {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(async move {
            let keys = Keys::new(name);
            let call = ACQUIRE
                .with([keys.lock(), keys.counter(), keys.queue(), keys.alive()])
                .arg(format!("{} {} {}", holder.as_str(), unix_millis(), self.label))
                .arg(ttl.as_millis())
                .arg(u8::from(order == Order::Fair))
                .arg(self.retention_ms)
                .arg(QUEUE_PATIENCE.as_millis().to_string());
            let asked = Moment::now();
            let granted = |token, grant| {
                let valid = |number| valid_token(number).map_err(|error| self.unreadable(&error));
                let ownership = Ownership { holder: holder.clone(), grant: valid(grant)? };
                let token = valid(token)?;
                self.connection.keep_for(holder, ttl);
                Ok(Attempt::Granted { token, ownership, asked })
            };
            let numbers = match self.run::<Value>(call).await? {
                Value::Int(token) => return granted(token, token),
                reply => from_redis_value::<Vec<i64>>(reply).unwrap_or_default(),
            };
            match numbers[..] {
                [1, token, grant] => granted(token, grant),
                [0, remaining, ref in_queue @ ..] => Ok(Attempt::Busy(Contention {
                    remaining: remaining_time(remaining),
                    ahead: in_queue.first().and_then(|&ahead| ahead.try_into().ok()),
                    nap: in_queue.get(1).and_then(|&nap| remaining_time(nap)),
                })),
                _ => Err(self.unreadable(&InvalidReply::not_a_lock(name))),
            }
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let keys = Keys::new(name);
            let call = RENEW
                .with([keys.lock(), keys.counter()])
                .arg(ownership.holder.as_str())
                .arg(ownership.grant.as_u64())
                .arg(ttl.as_millis())
                .arg(self.retention_ms);
            let renewed = self.token_of_owner(self.run(call).await?)?;
            if renewed.is_some() {
                self.connection.keep_on_for(&ownership.holder, ttl);
            }
            Ok(renewed)
        })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let keys = Keys::new(name);
            let call = REISSUE
                .with([keys.lock(), keys.counter()])
                .arg(ownership.holder.as_str())
                .arg(ownership.grant.as_u64())
                .arg(above.as_u64())
                .arg(unix_millis())
                .arg(self.retention_ms);
            self.token_of_owner(self.run(call).await?)
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        _: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let keys = Keys::new(name);
            let call = RELEASE
                .with([keys.lock(), keys.queue(), keys.alive()])
                .arg(holder.as_str())
                .arg(keys.freed())
                .arg(QUEUE_PATIENCE.as_millis().to_string());
            let released = self.run(call).await?;
            self.connection.kept_for().let_go(holder);
            Ok(released)
        })
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(async move {
            let keys = Keys::new(name);
            let channel = match order {
                Order::Unordered => keys.freed(),
                Order::Fair => keys.freed_for(holder),
            };
            let subscribed = self.subscriptions.subscribe(channel).await;
            subscribed.map_err(|error| failed(&self.server, &error))
        })
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        Box::pin(async move {
            let keys = Keys::new(name);
            let call = STATUS.with([keys.lock(), keys.counter(), keys.queue()]);
            let status = reply::status(name, self.run::<StatusReply>(call).await?);
            status.map_err(|invalid| rejected(&self.server, &invalid))
        })
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        names::held(self.server.clone(), self.limits, prefix)
    }

    fn detach(&self, ownership: &Ownership, token: Token) -> Token {
        self.connection.kept_for().detach(&ownership.holder);
        token
    }

    fn adopt(&self, ownership: &Ownership, _: Token) {
        self.connection.adopt(&ownership.holder);
    }

    fn answer_timeout(&self) -> Duration {
        self.limits.answer
    }

    fn address(&self) -> String {
        self.server.to_string()
    }
}
