//! What listens at a port that is not the Redis that a URL names.

use std::{io, time::Duration};

use redis::{ConnectionAddr, ErrorKind, RedisError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// A question that Redis and HTTP servers answer.
const PLAIN: &[u8] = b"PING / HTTP/1.0\r\n\r\n";
/// The shortest start of a TLS connection. A TLS server answers it with an alert.
const TLS: &[u8] = &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0];
/// The types of the records in which a TLS server answers: alert and handshake.
const TLS_ANSWERS: [u8; 2] = [0x15, 0x16];

/// Returns an error that says what listens at an address, if it is found within twice this time
/// that it does not speak the protocol of the URL.
pub(super) async fn other_protocol(
    address: &ConnectionAddr,
    limit: Duration,
) -> Option<RedisError> {
    let (host, port, is_encrypted) = match address {
        ConnectionAddr::Tcp(host, port) => (host, *port, false),
        ConnectionAddr::TcpTls { host, port, .. } => (host, *port, true),
        _ => return None,
    };
    let ask = |question| timeout(limit, answer(host, port, question));
    let reason = match ask(PLAIN).await {
        Ok(Ok(answer)) if answer.starts_with(b"HTTP") => {
            "an HTTP server is at this port, and no Redis"
        }
        Ok(Ok(answer)) if is_encrypted && answer.starts_with(b"-") => {
            "this port takes no encrypted connections: name it by redis, not rediss"
        }
        _ if !is_encrypted => match ask(TLS).await {
            Ok(Ok(answer)) if TLS_ANSWERS.iter().any(|first| answer.starts_with(&[*first])) => {
                "this port takes only encrypted connections: name it by rediss, not redis"
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(RedisError::from((ErrorKind::InvalidClientConfig, reason)))
}

/// Returns the first bytes of an answer.
async fn answer(host: &str, port: u16, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut connection = TcpStream::connect((host, port)).await?;
    connection.write_all(question).await?;
    let mut answer = Vec::new();
    connection.take(4).read_to_end(&mut answer).await?;
    Ok(answer)
}
