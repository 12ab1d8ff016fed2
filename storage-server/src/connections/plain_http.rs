//! A client that speaks plain HTTP where connections are encrypted.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 31\r\nconnection: close\r\n\r\nthis address speaks https only\n";
/// How long the server sends the answer and reads the rest of the request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error("the client speaks plain HTTP")]
pub(super) struct PlainHttp;

/// Answers a client that speaks plain HTTP. Its first byte is a letter, and that of TLS is not.
///
/// # Errors
/// [`PlainHttp`] if the client speaks plain HTTP. Another error if the connection is lost.
pub(super) async fn reject_plain_http(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 || !first[0].is_ascii_uppercase() {
        return Ok(stream);
    }
    // The client may be gone, and may send without an end.
    let _ = timeout(ANSWER_TIMEOUT, answer(&mut stream)).await;
    Err(io::Error::other(PlainHttp))
}

async fn answer(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(ANSWER).await?;
    stream.shutdown().await?;
    // The system resets a connection that is closed with bytes unread, and the client would lose the answer.
    let mut part = [0; 1024];
    while stream.read(&mut part).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A client, and the same connection as the server has it.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    async fn rejection(stream: TcpStream) -> io::Error {
        let rejected = timeout(PATIENCE, reject_plain_http(stream)).await;
        rejected.expect("it ends").unwrap_err()
    }

    #[tokio::test]
    async fn upload_that_never_ends_is_answered_and_cut_off() {
        let (client, server) = connected().await;
        let (mut reading, mut writing) = client.into_split();
        let uploading = async {
            writing.write_all(b"PUT / HTTP/1.1\r\ncontent-length: 1000000000000\r\n\r\n").await?;
            loop {
                writing.write_all(&[b'x'; 1 << 16]).await?;
            }
        };
        let asking = async {
            let mut answer = vec![0; ANSWER.len()];
            reading.read_exact(&mut answer).await.unwrap();
            answer
        };
        let all = async { tokio::join!(uploading, asking, rejection(server)) };
        let (uploaded, answer, rejection): (io::Result<()>, _, _) =
            timeout(PATIENCE, all).await.expect("the upload is cut off");
        assert_eq!(answer, ANSWER);
        assert!(rejection.get_ref().unwrap().is::<PlainHttp>(), "{rejection}");
        uploaded.unwrap_err();
    }

    #[tokio::test]
    async fn client_that_closes_after_one_byte_speaks_plain_http() {
        let (mut client, server) = connected().await;
        client.write_all(b"G").await.unwrap();
        drop(client);
        let rejection = rejection(server).await;
        assert!(rejection.get_ref().unwrap().is::<PlainHttp>(), "{rejection}");
        // The control: the first byte of TLS.
        let (mut client, server) = connected().await;
        client.write_all(&[0x16]).await.unwrap();
        drop(client);
        reject_plain_http(server).await.unwrap();
    }
}
