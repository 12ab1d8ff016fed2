//! What is logged of requests and of settings. These tests are alone in their process, because events are
//! enabled once for all threads.

use std::{
    io,
    sync::{Arc, Mutex},
};

use fence::Holder;
use lock_client::{
    Order, Ttl,
    backend::Backend,
    postgres::{Postgres, install},
};
use sqlx::{Connection, PgConnection};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn logged(log: &Log) -> DefaultGuard {
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(log.clone());
    tracing::subscriber::set_default(subscriber.finish())
}

#[test]
fn setting_without_effect_is_named_in_a_warning() {
    let log = Log::default();
    let _logging = logged(&log);
    Postgres::open("postgres://db/locks?connect_timeout=3&application_name=app").unwrap();
    let warning = "WARN lock_client::sql::url: the setting `connect_timeout` in the URL";
    assert!(log.text().contains(warning), "{}", log.text());
    assert!(!log.text().contains("application_name"), "the control: it has one");
}

/// A holder is the proof of holding a lock.
#[tokio::test]
async fn statements_with_holders_are_not_logged() {
    let server = testbed::Postgres::start().await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    install(&mut connection).await.unwrap();
    let client = Postgres::open(&server.url()).unwrap();
    let log = Log::default();
    let _logging = logged(&log);

    let holder = Holder::random();
    let (name, ttl) = ("r".parse().unwrap(), Ttl::from_secs(60).unwrap());
    let _ = client.try_acquire(&name, &holder, ttl, Order::Fair).await.unwrap();
    client.release(&name, &holder, None).await.unwrap();
    let hex: String = holder.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(!log.text().contains(&hex) && !log.text().contains(holder.as_str()));

    // The log would have it, if a statement were logged.
    let statement = sqlx::AssertSqlSafe(format!("select '{hex}'"));
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    assert!(log.text().contains(&hex), "{}", log.text());
}
