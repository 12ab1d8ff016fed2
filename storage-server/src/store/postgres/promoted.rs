//! A replica that was promoted while this server goes on with its own primary.
//!
//! Each of the two may have writes that the other lacks, and nothing says which one is right. So the server
//! writes to neither, says so at once, and goes on once the replica is a standby again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use postgres_primary::{Instance, Newest, Role};
use sqlx::{ConnectOptions, PgConnection, Row, postgres::PgConnectOptions};
use tokio::time::{sleep, timeout};

use crate::store::kept_pool::ReplacedAt;

/// How often the replica is asked what it is.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long it may take to answer.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// The promoted replica, if there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Promoted(Arc<Mutex<Option<Found>>>);

#[derive(Clone, Debug)]
struct Found {
    timeline: i64,
    /// That of the primary.
    known: i64,
    place: Place,
}

/// The address of a server, as it knows it itself. Several may be behind the address of a replica.
type Place = (Option<String>, Option<i32>);

impl Promoted {
    /// Rejects a primary that is older than the promoted replica.
    pub(super) fn reject(&self, primary: &Instance) -> Result<(), String> {
        match &*self.0.lock().expect("no panic while it is held") {
            Some(found) if found.timeline > primary.timeline => Err(found.reason()),
            _ => Ok(()),
        }
    }

    /// Says why no connection to the primary was made. The pool only says that it made none in time.
    pub(super) fn explain(&self, error: sqlx::Error) -> sqlx::Error {
        match (&*self.0.lock().expect("no panic while it is held"), &error) {
            (Some(found), sqlx::Error::PoolTimedOut) => {
                sqlx::Error::Configuration(found.reason().into())
            }
            _ => error,
        }
    }

    /// Takes note of what the replica is now. All connections are `replaced` if it is newer than the
    /// primary. Only the same server, as a standby, shows that the promoted one is gone: one that does not
    /// answer may come back, and another one may follow the old primary.
    fn note(&self, place: Place, replica: &Instance, newest: &Newest, replaced: &ReplacedAt) {
        let Some(known) = newest.timeline() else { return };
        let mut promoted = self.0.lock().expect("no panic while it is held");
        let is_newer = replica.timeline > known;
        let is_noted = promoted.as_ref().is_some_and(|it| it.timeline >= replica.timeline);
        match (&*promoted, replica.role) {
            (_, Role::Primary) if is_newer && !is_noted => {
                let found = Found { timeline: replica.timeline, known, place };
                tracing::error!("{}", found.reason());
                *promoted = Some(found);
                // The others lead to a primary that must not be used now.
                replaced.replace_all();
            }
            (Some(found), Role::Standby) if !is_newer && found.place == place => {
                tracing::warn!("the promoted replica is a standby again, and writes go on");
                *promoted = None;
            }
            // The hosts of the database have followed.
            (Some(found), _) if found.timeline <= known => *promoted = None,
            _ => {}
        }
    }

    /// Asks the replica that a session has reached.
    ///
    /// # Errors
    /// Those of the session, and the reason why the replica must not be used, such as an old primary.
    pub(super) async fn look(
        &self,
        connection: &mut PgConnection,
        newest: &Newest,
        replaced: &ReplacedAt,
    ) -> Result<(), sqlx::Error> {
        let ask = sqlx::raw_sql("select host(inet_server_addr()), inet_server_port()");
        let place = ask.fetch_one(&mut *connection).await?;
        let place = (place.try_get(0)?, place.try_get(1)?);
        let replica = Instance::ask(connection).await?;
        newest.recognise(&replica).map_err(rejected)?;
        if replica.role == Role::Primary && Some(replica.timeline) < newest.timeline() {
            return Err(rejected(format!("it is {replica}, which is an old primary")));
        }
        self.note(place, &replica, newest, replaced);
        Ok(())
    }
}

impl Found {
    fn reason(&self) -> String {
        format!(
            "the replica of --read-url was promoted to timeline {}, and the primary is at timeline {}: each \
             may have writes that the other lacks, so neither takes any. If the replica is right, make it \
             the primary of --database-url. If not, make it a standby again, and this server goes on",
            self.timeline, self.known
        )
    }
}

fn rejected(reason: String) -> sqlx::Error {
    sqlx::Error::Configuration(format!("the replica: {reason}").into())
}

/// Asks the replica again and again what it is.
pub(super) async fn watch(
    options: PgConnectOptions,
    promoted: Promoted,
    newest: Newest,
    replaced: ReplacedAt,
) {
    let mut kept = None;
    loop {
        let look = async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => options.connect().await?,
            };
            promoted.look(&mut connection, &newest, &replaced).await?;
            Ok::<_, sqlx::Error>(connection)
        };
        // A replica that does not answer shows nothing. Its reads fail, and say why.
        let looked = timeout(LOOK_TIMEOUT, look).await;
        kept = looked.ok().and_then(Result::ok);
        sleep(LOOK_INTERVAL).await;
    }
}
