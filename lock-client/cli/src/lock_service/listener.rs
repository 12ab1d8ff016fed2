//! What listens where a lock service should be.
//!
//! A server that gets a question of another protocol often waits for the rest of it, and answers
//! nothing. So a lock service that does not answer is asked in each protocol that this command knows.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::service::Service;

/// The name of a server that is no lock service by itself. etcd is one, too.
const HTTP: &str = "an HTTP server";
/// Questions that change nothing. The servers that don't understand one close the connection.
const QUESTIONS: [&[u8]; 3] = [
    // etcd and other HTTP servers answer it, and Redis rejects it. MariaDB speaks first.
    b"GET /version HTTP/1.0\r\n\r\n",
    // ZooKeeper's command for its state.
    b"srvr",
    // PostgreSQL's SSLRequest.
    &[0, 0, 0, 8, 4, 210, 22, 47],
];
/// Answers are shorter.
const LONGEST_ANSWER: u64 = 1 << 16;

impl Service<'_> {
    /// Asks what listens at these addresses. Returns a sentence for each that is another server.
    pub(super) async fn misfits(&self, addresses: Vec<String>, limit: Duration) -> Vec<String> {
        let expected = self.server_name();
        let found = addresses.into_iter().map(async |address| {
            match find(&address, limit).await? {
                // The error of etcd has the answer of another HTTP server.
                HTTP if matches!(self, Self::Etcd(_)) => None,
                found if found == expected => None,
                found => Some(format!("{address} is {found}, not {expected}")),
            }
        });
        join_all(found).await.into_iter().flatten().collect()
    }
}

/// Finds the server at an address. `None` if nothing answers there, or it is unknown.
async fn find(address: &str, limit: Duration) -> Option<&'static str> {
    for question in QUESTIONS {
        let answer = async {
            let mut connection = TcpStream::connect(address).await.ok()?;
            Some(ask(&mut connection, question).await)
        };
        // Without a name, it has closed the connection.
        if let Some(name) = timeout(limit, answer).await.ok()?? {
            return Some(name);
        }
    }
    None
}

/// Asks a question, and returns the name of the server once its answer shows it. `None` if the
/// connection ends before.
async fn ask(connection: &mut TcpStream, question: &[u8]) -> Option<&'static str> {
    connection.write_all(question).await.ok()?;
    let (mut connection, mut answer) = (connection.take(LONGEST_ANSWER), Vec::new());
    // The end of a connection may be an error, too.
    while connection.read_buf(&mut answer).await.is_ok_and(|length| length > 0) {
        if let Some(name) = name_of(&answer) {
            return Some(name);
        }
    }
    answer.starts_with(b"HTTP/").then_some(HTTP)
}

/// Returns the name of the lock service that answers like this.
fn name_of(answer: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(answer);
    match answer {
        [b'-', ..] => Some("Redis"),
        [b'S' | b'N'] => Some("PostgreSQL"),
        // The length and the number of the message; then the version of its protocol, or an error.
        [_, _, _, 0, 10 | 255, ..] => Some("MariaDB"),
        _ if text.contains(r#""etcdserver""#) => Some("etcd"),
        _ if text.to_lowercase().contains("zookeeper") || text.contains("not in the whitelist") => {
            Some("ZooKeeper")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_answers() {
        for (answer, name) in [
            (&b"-NOAUTH Authentication required.\r\n"[..], Some("Redis")),
            (b"HTTP/1.0 200 OK\r\n\r\n{\"etcdserver\":\"3.5.16\"}", Some("etcd")),
            (b"HTTP/1.0 404 Not Found\r\n\r\n", None),
            (b"Zookeeper version: 3.8.0, built on", Some("ZooKeeper")),
            (b"This ZooKeeper instance is not currently serving requests", Some("ZooKeeper")),
            (b"srvr is not executed because it is not in the whitelist.", Some("ZooKeeper")),
            (b"N", Some("PostgreSQL")),
            (b"\x59\0\0\0\x0a5.5.5-10.11.6-MariaDB", Some("MariaDB")),
            (b"\x45\0\0\0\xff\x6a\x04Host is not allowed to connect", Some("MariaDB")),
            (b"SSH-2.0-OpenSSH_9.2", None),
            (b"\x15\x03\x01\0\x02\x02\x28", None),
            (b"", None),
        ] {
            assert_eq!(name_of(answer), name, "{}", String::from_utf8_lossy(answer));
        }
    }
}
