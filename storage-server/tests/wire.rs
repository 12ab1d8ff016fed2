//! HTTP as it goes over the wire: requests that no well-behaved client would send, and answers to
//! the byte.

use std::{io, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter().filter(|(header, _)| header == name);
        headers.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The problem that the answer is, as `status slug`.
    pub(crate) fn problem(&self) -> String {
        let type_header = self.header("content-type");
        assert_eq!(type_header, Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status);
        let slug = json["type"].as_str().unwrap().strip_prefix("/problems/").unwrap();
        format!("{} {slug}", self.status)
    }
}

/// Sends a request, with a body if it is not empty.
pub(crate) async fn request(
    url: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Answer {
    let body = body.as_ref();
    let mut request = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    send(url, [request.as_bytes(), b"Host: localhost\r\nConnection: close\r\n\r\n", body].concat())
        .await
}

/// Sends these bytes, and reads the answer to its end.
pub(crate) async fn send(url: &str, bytes: Vec<u8>) -> Answer {
    let mut connection = connect(url).await;
    connection.write_all(&bytes).await.unwrap();
    answer(&mut connection).await
}

pub(crate) async fn connect(url: &str) -> TcpStream {
    TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap()
}

/// Reads the answer on a connection that the server closes after it.
pub(crate) async fn answer(connection: &mut (impl AsyncRead + Unpin)) -> Answer {
    try_answer(connection).await.unwrap()
}

/// Reads the answer, unless the connection breaks.
pub(crate) async fn try_answer(connection: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    timeout(ANSWER_TIMEOUT, connection.read_to_end(&mut bytes)).await.expect("no answer")?;
    Ok(parse(&bytes))
}

/// The parts of an answer, whose head is whole.
pub(crate) fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a whole head");
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_owned(), value.to_owned())
    });
    Answer { status, headers: headers.collect(), body: bytes[end + 4..].to_vec() }
}
