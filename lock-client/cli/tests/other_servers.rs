//! Ports at which another server listens than the URL says.

use std::io;

use futures_util::future::join_all;
use testbed::{Etcd, MariaDb, Postgres, Proxy, Redis, ZooKeeper};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy, sink},
    net::{TcpListener, TcpStream},
};

use crate::command::{NO_ANSWER, assert_failed, lock_client};

/// A URL for each kind of server at an address, with the name of that kind.
fn urls(address: &str) -> [(&'static str, String); 5] {
    [
        ("Redis", format!("redis://{address}")),
        ("etcd", format!("etcd://{address}")),
        ("ZooKeeper", format!("zookeeper://{address}")),
        ("PostgreSQL", format!("postgres://u:p@{address}/d")),
        ("MariaDB", format!("mariadb://u:p@{address}/d")),
    ]
}

async fn status(url: &str) -> std::process::Output {
    // A busy machine is no silent server.
    lock_client(&["status", "r", "--locks", url, "--answer-timeout", "2s"]).await
}

/// Asks for a lock by the URLs of all other kinds, and finds the server named. By the right URL, it is
/// not: that is the control.
async fn assert_named(address: &str, name: &str) {
    for (expected, url) in urls(address) {
        let output = status(&url).await;
        if expected == name {
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(!stderr.contains(", not "), "{url}: {stderr}");
        } else {
            let reason = format!("lock-client: {address} is {name}, not {expected}\n");
            assert_failed(&output, 69, &reason);
        }
    }
}

#[tokio::test]
async fn server_of_another_kind_is_named() {
    let redis = Redis::start_on_tcp(&["--requirepass", "secret"]).await.unwrap();
    let etcd = Etcd::start().await.unwrap();
    let zookeeper = ZooKeeper::start().await.unwrap();
    let postgres = Postgres::start().await.unwrap();
    let socket = postgres.socket_folder().join(format!(".s.PGSQL.{}", postgres.port()));
    let postgres = Proxy::start(socket).await.unwrap();
    let server = MariaDb::start().await.unwrap();
    let mariadb = Proxy::start(server.socket()).await.unwrap();
    let servers = [
        (redis.url().replace("redis://", ""), "Redis"),
        (etcd.address(0).to_string(), "etcd"),
        (zookeeper.address(0).to_string(), "ZooKeeper"),
        (postgres.address().to_string(), "PostgreSQL"),
        (mariadb.address().to_string(), "MariaDB"),
    ];
    join_all(servers.iter().map(|(address, name)| assert_named(address, name))).await;
}

/// Answers as an HTTP server. It panics at no client: the report of a panic would hold up the others.
async fn answer_as_http(connection: TcpStream) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    // A client of another protocol sends no text, and closes without a line.
    connection.read_until(b'\n', &mut Vec::new()).await?;
    connection.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n").await?;
    connection.shutdown().await?;
    // A connection that is closed with unread bytes is reset, and may lose the answer.
    copy(&mut connection, &mut sink()).await.map(drop)
}

#[tokio::test]
async fn http_server_is_named_unless_etcd_is_expected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(answer_as_http(connection));
        }
    });
    let asking = urls(&address.to_string()).map(async |(expected, url)| {
        let reason = match expected {
            "etcd" => "HTTP 404 Not Found, which is no answer of etcd".to_owned(),
            _ => format!("{address} is an HTTP server, not {expected}"),
        };
        assert_failed(&status(&url).await, 69, &reason);
    });
    join_all(asking).await;
}

/// It may be the right server, which hangs.
#[tokio::test]
async fn silent_server_is_not_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asking = urls(&address.to_string()).map(async |(_, url)| {
        let output = status(&url).await;
        assert_failed(&output, 69, NO_ANSWER);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains(", not "), "{url}: {stderr}");
    });
    join_all(asking).await;
}
