//! PostgreSQL behind a network that is slow, but loses nothing.

use std::{io, path::Path, time::Duration};

use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::sleep,
    try_join,
};

use crate::{
    database::Database,
    transactions::{transact, write},
};

const SOCKET: &str = ".s.PGSQL.5432";
/// The pause after each byte: 2 MiB need a second.
const PAUSE: Duration = Duration::from_nanos(500);

async fn carry(network: UnixListener, postgres: &Path) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = network.accept().await?;
        let server = UnixStream::connect(postgres.join(SOCKET)).await?;
        connections.spawn(carry_slowly(client, server));
    }
}

async fn carry_slowly(client: UnixStream, server: UnixStream) -> io::Result<()> {
    let (mut requests, mut to_client) = client.into_split();
    let (mut answers, mut to_server) = server.into_split();
    let sent = async {
        let mut part = vec![0; 1 << 15];
        loop {
            let length = requests.read(&mut part).await?;
            if length == 0 {
                return to_server.shutdown().await;
            }
            to_server.write_all(&part[..length]).await?;
            sleep(PAUSE * u32::try_from(length).expect("a part is short")).await;
        }
    };
    try_join!(sent, copy(&mut answers, &mut to_client)).map(drop)
}

/// A transaction that holds locks and sends nothing is ended, so that no paused server holds up
/// others. One whose values are on their way is not.
#[tokio::test]
async fn large_values_of_a_transaction_have_the_time_to_be_sent() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let network = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
    let direct = Database::postgres().await;
    let postgres = direct.postgres.as_ref().unwrap();
    let slow = Database::behind(folder);
    let value = "x".repeat(900 << 10);
    let writes = ["a", "b", "c"].map(|name| write(name, 1, &value));
    let transaction = json!({ "writes": writes });
    let written = async {
        let server = slow.serve(&["--max-value-bytes", "4194304"]).await;
        transact(&server, &transaction).await
    };
    tokio::select! {
        ended = carry(network, postgres.socket_folder()) => panic!("the network ended: {ended:?}"),
        answer = written => assert_eq!(answer.status, 200, "{}", answer.text()),
    }
}
