//! The database that the packages' tests run on: a fence, accounts without a trigger, and a table
//! that is protected.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sqlx::{Connection, PgConnection};
use testbed::{
    Postgres, Proxy,
    proxy::{Rule, Verdict},
};

/// The roles have the rights that `migrations/README.md` asks for, and no others.
const TABLES: &str = "
    create role owner login;
    create role application login;
    grant usage on schema fence to owner, application;
    grant create on schema public to owner;
    set role owner;
    create table accounts (account_id text primary key, balance bigint not null);
    create table entries (account_id text not null, amount integer not null);
    select fence.protect('entries', 'account_id');
    grant select, insert, update on accounts to application;
    grant select, insert on entries to application;

    -- What happens at the end of a transaction that inserts here.
    create table at_commit (what text not null);
    create function happen() returns trigger language plpgsql as $$
    begin
        if new.what = 'contend' then
            raise sqlstate '40001' using message = 'could not serialize access';
        end if;
        perform pg_terminate_backend(pg_backend_pid());
        return null;
    end
    $$;
    create constraint trigger happens after insert on at_commit
    deferrable initially deferred for each row execute function happen();
    grant insert on at_commit to application;
";

/// A database, and a proxy before it that loses all answers to commits.
pub(super) struct Database {
    postgres: Postgres,
    proxy: Proxy,
    has_lost_an_answer: Arc<AtomicBool>,
}

#[derive(Debug)]
struct LoseAnswersToCommits(Arc<AtomicBool>);

impl Rule for LoseAnswersToCommits {
    fn on_reply(&mut self, request: &[u8], _: &[u8]) -> Verdict {
        if !request.to_ascii_lowercase().windows(6).any(|text| text == b"commit") {
            return Verdict::Pass;
        }
        self.0.store(true, Ordering::Relaxed);
        Verdict::Drop
    }
}

impl Database {
    pub(super) async fn start() -> Self {
        let postgres = Postgres::start().await.unwrap();
        let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
        fence::postgres::install(&mut connection).await.unwrap();
        sqlx::raw_sql(TABLES).execute(&mut connection).await.unwrap();
        let proxy = Proxy::start(postgres.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
        let has_lost_an_answer = Arc::default();
        proxy.add(LoseAnswersToCommits(Arc::clone(&has_lost_an_answer)));
        Self { postgres, proxy, has_lost_an_answer }
    }

    /// The environment of the tests.
    pub(super) fn urls(&self) -> [(&'static str, String); 4] {
        let url = |role| self.postgres.url().replace("//postgres@", &format!("//{role}@"));
        let lossy =
            format!("postgres://application@{}/postgres?sslmode=disable", self.proxy.address());
        [
            ("DATABASE_URL", url("application")),
            ("OWNER_URL", url("owner")),
            ("SUPERUSER_URL", self.superuser_url()),
            ("LOSSY_URL", lossy),
        ]
    }

    pub(super) fn superuser_url(&self) -> String {
        self.postgres.url()
    }

    pub(super) fn has_lost_an_answer(&self) -> bool {
        self.has_lost_an_answer.load(Ordering::Relaxed)
    }
}
