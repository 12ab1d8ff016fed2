//! A client that speaks plain HTTP where connections are encrypted.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 31\r\nconnection: close\r\n\r\nthis address speaks https only\n";
/// How long the server waits for the rest of the request.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers a client that speaks plain HTTP. Its first byte is a letter, and that of TLS is not.
///
/// # Errors
/// If the client speaks plain HTTP, or the connection is lost.
pub(super) async fn reject_plain_http(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 || !first[0].is_ascii_uppercase() {
        return Ok(stream);
    }
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    // The system resets a connection that is closed with bytes unread, and the client would lose the answer.
    let mut part = [0; 1024];
    let _ = timeout(REST_TIMEOUT, async {
        while stream.read(&mut part).await? > 0 {}
        Ok::<_, io::Error>(())
    })
    .await;
    Err(io::Error::other(rustls::Error::General("the client speaks plain HTTP".to_owned())))
}
