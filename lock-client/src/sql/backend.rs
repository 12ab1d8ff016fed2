//! Locks in a database, as a backend. Each database makes its own statements.

use std::{fmt, pin::Pin, time::Duration};

use fence::{Holder, ResourceName, Token};
use sqlx::Database;

use super::{
    answer::{self, InvalidAnswer, LockDatabase},
    line::Statements,
    names,
    pool::{Connect, Pool, Purpose},
};
use crate::{
    backend::{
        Attempt, Backend, BackendError, BackendFuture, DEFAULT_ANSWER_TIMEOUT, HeldNames,
        Ownership, Status, Wakeups,
    },
    clock::Moment,
    label::printable,
    terms::Order,
    ttl::Ttl,
};
use crate::{clock::unix_millis, terms::QUEUE_PATIENCE};

pub(crate) enum Request<'a> {
    Acquire(&'a ResourceName, &'a Holder, Ttl, Order),
    Renew(&'a ResourceName, &'a Ownership, Ttl),
    Reissue(&'a ResourceName, &'a Ownership, Token),
    Release(&'a ResourceName, &'a Holder),
    Status(&'a ResourceName),
    /// The names with a prefix that follow another one, which is in hexadecimal digits.
    HeldNames(&'a str, &'a str),
}

impl Request<'_> {
    /// The call of the function that PostgreSQL and MariaDB have for it. `text` writes a text as an
    /// expression, and `decoded` one in hexadecimal digits.
    pub(crate) fn call(
        &self,
        label: &str,
        text: impl Fn(&str) -> String,
        decoded: impl Fn(&str) -> String,
    ) -> String {
        let own = |name: &ResourceName, holder: &Holder| {
            format!("{}, {}", text(name.as_str()), text(holder.as_str()))
        };
        match self {
            Self::Acquire(name, holder, ttl, order) => {
                let patience_ms = match order {
                    Order::Fair => QUEUE_PATIENCE.as_millis().to_string(),
                    Order::Unordered => "null".to_owned(),
                };
                let (own, since_ms, label) = (own(name, holder), unix_millis(), text(label));
                format!("acquire({own}, {}, {patience_ms}, {since_ms}, {label})", ttl.as_millis())
            }
            Self::Renew(name, Ownership { holder, grant }, ttl) => {
                format!("renew({}, {grant}, {})", own(name, holder), ttl.as_millis())
            }
            Self::Reissue(name, Ownership { holder, grant }, above) => {
                format!("reissue({}, {grant}, {above})", own(name, holder))
            }
            Self::Release(name, holder) => format!("release({})", own(name, holder)),
            Self::Status(name) => format!("status({})", text(name.as_str())),
            Self::HeldNames(prefix, after) => {
                format!("held_names({}, {})", text(prefix), decoded(after))
            }
        }
    }
}

/// A database with locks. This makes it a [`Backend`].
pub(crate) trait SqlBackend: Clone + fmt::Debug + Send + Sync + 'static {
    type Database: LockDatabase;

    fn client(&self) -> &Client<Self::Database>;

    fn statements(&self, request: Request<'_>) -> Statements;

    /// Reads whether a release has released the lock, and notifies waiters if the database doesn't.
    fn released(
        &self,
        name: &ResourceName,
        row: &<Self::Database as Database>::Row,
    ) -> Result<bool, InvalidAnswer>;

    fn subscribe(
        &self,
        name: &ResourceName,
        holder: &Holder,
        order: Order,
    ) -> impl Future<Output = Wakeups> + Send;
}

/// The connections to a database, and what errors say of it.
pub(crate) struct Client<D: Database> {
    pub(crate) pool: Pool<D>,
    pub(crate) address: String,
    pub(crate) label: String,
    explain: fn(&sqlx::Error) -> Explained,
}

impl<D: Database> Clone for Client<D> {
    fn clone(&self) -> Self {
        let Self { pool, address, label, explain } = self;
        Self {
            pool: pool.clone(),
            address: address.clone(),
            label: label.clone(),
            explain: *explain,
        }
    }
}

pub(crate) enum Explained {
    /// Nothing was changed, and a repetition would not help.
    Rejected(String),
    /// It may pass, or leaves the outcome unknown.
    Unavailable(String),
}

impl<D: LockDatabase> Client<D> {
    pub(crate) fn new(
        connect: Connect<D>,
        address: String,
        explain: fn(&sqlx::Error) -> Explained,
    ) -> Self {
        let pool = Pool::new(connect, DEFAULT_ANSWER_TIMEOUT);
        Self { pool, address, label: String::new(), explain }
    }

    /// Replaces the connections by new ones, which are made in this way.
    pub(crate) fn reconnected(self, connect: Connect<D>, answer_timeout: Duration) -> Self {
        Self { pool: Pool::new(connect, answer_timeout), ..self }
    }

    /// Sets a label without control characters, of 200 characters at most.
    pub(crate) fn labelled(self, label: &str) -> Self {
        Self { label: printable(label), ..self }
    }

    fn answered(&self, answer: Result<D::Row, sqlx::Error>) -> Result<D::Row, BackendError> {
        answer.map_err(|error| {
            let explained = match &error {
                sqlx::Error::Tls(reason) => {
                    Explained::Rejected(format!("the encrypted connection failed: {reason}"))
                }
                error => (self.explain)(error),
            };
            match explained {
                Explained::Rejected(reason) => self.rejected(&reason),
                Explained::Unavailable(reason) => {
                    BackendError::Unavailable(format!("{}: {reason}", self.address).into())
                }
            }
        })
    }

    /// Reads an answer. If this crate's SQL never makes such an answer, this is reported.
    fn read<T>(&self, answer: Result<T, InvalidAnswer>) -> Result<T, BackendError> {
        answer.map_err(|invalid| self.rejected(&invalid))
    }

    fn rejected(&self, reason: &impl fmt::Display) -> BackendError {
        BackendError::Rejected(format!("{}: {reason}", self.address).into())
    }

    /// Sends a renewal or a reissue, and returns the token; `None` if the lock has another owner.
    async fn token(
        &self,
        holder: &Holder,
        renewed: Option<Ttl>,
        statements: Statements,
    ) -> Result<Option<Token>, BackendError> {
        let purpose = renewed.map_or(Purpose::Other, |ttl| Purpose::Renewal(holder.clone(), ttl));
        let row = self.answered(self.pool.fetch_held(purpose, statements).await)?;
        // The statements were carried out.
        let token =
            self.read(answer::token::<D>(&row, "token")).map_err(BackendError::after_a_change)?;
        if token.is_none() {
            self.pool.kept_for().let_go(holder);
        }
        Ok(token)
    }
}

impl<B: SqlBackend> Backend for B {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(async move {
            let (client, asked) = (self.client(), Moment::now());
            let statements = self.statements(Request::Acquire(name, holder, ttl, order));
            let row = client.answered(client.pool.fetch_try(holder, ttl, statements).await)?;
            let attempt = client.read(answer::attempt::<B::Database>(&row, holder, asked));
            attempt.map_err(BackendError::after_a_change)
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        let statements = self.statements(Request::Renew(name, ownership, ttl));
        Box::pin(self.client().token(&ownership.holder, Some(ttl), statements))
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        let statements = self.statements(Request::Reissue(name, ownership, above));
        Box::pin(self.client().token(&ownership.holder, None, statements))
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        token: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            let (client, statements) =
                (self.client(), self.statements(Request::Release(name, holder)));
            let row = client.pool.fetch_release(holder, token.is_none(), statements).await;
            let released = client.read(self.released(name, &client.answered(row)?));
            released.map_err(BackendError::after_a_change)
        })
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(async move { Ok(SqlBackend::subscribe(self, name, holder, order).await) })
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        Box::pin(async move {
            let (client, statements) = (self.client(), self.statements(Request::Status(name)));
            let row = client.answered(client.pool.fetch(statements).await)?;
            client.read(answer::status::<B::Database>(&row))
        })
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        let (own, prefix) = (self.clone(), prefix.to_owned());
        names::pages(move |after| {
            let (own, statements) =
                (own.clone(), own.statements(Request::HeldNames(&prefix, &after)));
            async move {
                let client = own.client();
                let row = client.answered(client.pool.fetch(statements).await)?;
                client.read(B::Database::text(&row, "names").map_err(Into::into))
            }
        })
    }

    /// Another client needs a connection for the lock from now on.
    fn detach(&self, ownership: &Ownership, token: Token) -> Token {
        self.client().pool.kept_for().detach(&ownership.holder);
        token
    }

    fn adopt(&self, ownership: &Ownership, _token: Token) {
        self.client().pool.adopt(&ownership.holder);
    }

    fn wait_for_releases(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.client().pool.wait_for_releases())
    }

    fn answer_timeout(&self) -> Duration {
        self.client().pool.answer_timeout()
    }

    fn address(&self) -> String {
        self.client().address.clone()
    }
}
