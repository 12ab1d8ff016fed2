//! The spans of locks, as a subscriber sees them. This test is alone in its process, because spans
//! are enabled once for all threads.

use std::{fs, sync::Mutex};

use lock_client::{Lease, Locks, Ttl, WithError};
use testbed::Redis;

#[tokio::test]
async fn events_under_a_lock_carry_its_name_and_token() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_writer(Mutex::new(log.reopen().unwrap()));
    // Everything runs on this thread.
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let locks = Locks::new(lock_client::redis::Redis::open(&redis.url()).unwrap());

    let request = tracing::info_span!("request", id = 7).entered();
    let mut holder = String::new();
    let body = async |lease: Lease| {
        holder = lease.holder().as_str().to_owned();
        tracing::info!("before");
        lease.reissue(33_u64.try_into().unwrap()).await.unwrap();
        tracing::info!("after");
        Ok::<_, ()>(())
    };
    let done: Result<(), WithError<()>> =
        locks.with(&"r".parse().unwrap(), Ttl::from_secs(60).unwrap(), body).await;
    done.unwrap();
    drop(request);

    let log = fs::read_to_string(log.path()).unwrap();
    let redacted = format!("{}...", &holder[..8]);
    let ours = log.replace(&redacted, "HOLDER");
    let ours: Vec<_> = ours.lines().filter(|line| line.contains("request{")).collect();
    let expected = [
        r#"DEBUG request{id=7}:acquire{name=r holder="HOLDER"}: lock_client::observe: acquired"#,
        r#" INFO request{id=7}:lease{name=r holder="HOLDER" token=33}: spans: before"#,
        r#" WARN request{id=7}:lease{name=r holder="HOLDER" token=33 token=34}: lock_client::observe: swapped"#,
        r#" INFO request{id=7}:lease{name=r holder="HOLDER" token=33 token=34}: spans: after"#,
        r#"DEBUG request{id=7}:lease{name=r holder="HOLDER" token=33 token=34}: lock_client::observe: released"#,
    ];
    assert_eq!(ours.len(), expected.len(), "{ours:#?}");
    for (line, expected) in ours.iter().zip(expected) {
        assert!(line.starts_with(expected), "{ours:#?}");
    }
    assert!(!log.contains(&holder), "no event shows a whole holder");
}
