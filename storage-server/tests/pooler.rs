//! PostgreSQL behind a pooler.

use std::{io, path::Path, time::Duration};

use tempfile::TempDir;
use testbed::{PgBouncer, wait::until_async};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

use crate::{
    database::{Database, offer},
    doctor::database_at,
};

const SOCKET: &str = ".s.PGSQL.5432";

/// Forwards connections, without the settings of sessions, as PgBouncer does with `ignore_startup_parameters = options`.
async fn pool(pooler: UnixListener, postgres: &Path) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = pooler.accept().await?;
        let server = UnixStream::connect(postgres.join(SOCKET)).await?;
        connections.spawn(forward(client, server));
    }
}

/// The first message is its length, the version of the protocol, and pairs of texts. Each text ends
/// with a zero byte, and so does the message.
async fn forward(mut client: UnixStream, mut server: UnixStream) -> io::Result<()> {
    let length = client.read_u32().await?;
    let mut message = vec![0; length as usize - 4];
    client.read_exact(&mut message).await?;
    let (version, parameters) = message.split_at(4);
    let texts: Vec<&[u8]> = parameters.split(|byte| *byte == 0).collect();
    let kept = texts.chunks(2).filter(|pair| pair[0] != b"options").flatten();
    let kept = kept.copied().collect::<Vec<_>>().join(&0);
    server.write_u32(u32::try_from(8 + kept.len()).unwrap()).await?;
    server.write_all(&[version, &kept].concat()).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

#[tokio::test]
async fn pooler_that_drops_synchronous_commit_is_rejected() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
    let direct = Database::postgres().await;
    let postgres = direct.postgres.as_ref().unwrap();
    let pooled = Database::behind(folder);
    let forwarding = pool(listener, postgres.socket_folder());
    tokio::select! {
        ended = forwarding => panic!("the pooler ended: {ended:?}"),
        () = check(&direct, &pooled) => {}
    }
}

async fn check(direct: &Database, pooled: &Database) {
    // The control: the default of the database is the setting that the server needs.
    let server = pooled.serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 1, "x").await.status, 201);

    for value in ["off", "local", "remote_write"] {
        let default = format!("alter database postgres set synchronous_commit = {value}");
        direct.execute(&default).await.unwrap();
        for command in [&["--listen", "127.0.0.1:0"][..], &["fence", "set", "r", "--token", "2"]] {
            let error = pooled.run(command).await.failed();
            assert!(error.contains(&format!("synchronous_commit={value}")), "{error}");
            assert!(error.contains("pooler"), "{error}");
        }
        // Without the pooler, the session's own setting counts.
        direct.run(&["fence", "show", "r"]).await.printed();
    }
    // New connections of a server that runs are checked, too.
    direct.execute("alter database postgres set synchronous_commit = off").await.unwrap();
    let end_sessions = "select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'storage-server'";
    direct.execute(end_sessions).await.unwrap();
    for _ in 0..3 {
        let answer = offer(&server, "PUT", "/v1/resources/r", 2, "x").await;
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
    direct.execute("alter database postgres reset synchronous_commit").await.unwrap();
    until_async(Duration::from_secs(20), async || {
        Ok(offer(&server, "PUT", "/v1/resources/r", 2, "x").await.status == 200)
    })
    .await
    .unwrap();
}

/// The first server would start, and the second one would fail with `prepared statement "sqlx_s_1" already
/// exists`.
#[tokio::test]
async fn pooler_in_transaction_mode_is_rejected_at_the_start() {
    let direct = Database::postgres().await;
    direct.run(&["migrate"]).await.printed();
    let postgres = direct.postgres.as_ref().unwrap();
    let ignore = "ignore_startup_parameters = extra_float_digits, options";
    let bouncer = PgBouncer::start_with(postgres, &[ignore]).await.unwrap();
    let pooled = database_at(bouncer.url());
    for command in [&["--check"][..], &["fence", "show", "r"], &["--listen", "127.0.0.1:0"]] {
        let error = pooled.run(command).await.failed();
        assert!(error.contains("connections share sessions"), "{command:?}: {error}");
        assert!(error.contains("connect without it, or in session mode"), "{command:?}: {error}");
    }
    // The control: in session mode, each connection has a session.
    let bouncer = PgBouncer::start_with(postgres, &[ignore, "pool_mode = session"]).await.unwrap();
    let server = database_at(bouncer.url()).serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 1, "x").await.status, 201);
}
