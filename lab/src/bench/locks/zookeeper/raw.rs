//! A raw connection to ZooKeeper: the few messages that the least needs.

use std::net::SocketAddr;

use anyhow::ensure;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A session outlives each round of the bench, in which the connection is used.
const SESSION_MS: i32 = 60_000;
const NEW_SESSION: i64 = 0;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const CLOSE_SESSION: i32 = -11;

const ALL_PERMISSIONS: i32 = 31;
const EPHEMERAL: i32 = 1;
const ANY_VERSION: i32 = -1;

/// A connection to a member, with a session of its own.
#[derive(Debug)]
pub(super) struct RawConnection {
    stream: TcpStream,
    number: i32,
}

impl RawConnection {
    pub(super) async fn open(member: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(member).await?;
        stream.set_nodelay(true)?;
        let mut connection = Self { stream, number: 0 };
        let (protocol, last_seen) = (0_i32.to_be_bytes(), 0_i64.to_be_bytes());
        let (timeout, session) = (SESSION_MS.to_be_bytes(), NEW_SESSION.to_be_bytes());
        let parts: [&[u8]; 6] =
            [&protocol, &last_seen, &timeout, &session, &text(&"\0".repeat(16)), &[0]];
        connection.exchange(&parts.concat()).await?;
        Ok(connection)
    }

    /// Creates an ephemeral node without data.
    pub(super) async fn create(&mut self, path: &str) -> anyhow::Result<()> {
        let (one, permissions) = (1_i32.to_be_bytes(), ALL_PERMISSIONS.to_be_bytes());
        let parts: [&[u8]; 7] = [
            &text(path),
            &text(""),
            &one,
            &permissions,
            &text("world"),
            &text("anyone"),
            &EPHEMERAL.to_be_bytes(),
        ];
        self.request(CREATE, &parts.concat()).await
    }

    pub(super) async fn delete(&mut self, path: &str) -> anyhow::Result<()> {
        self.request(DELETE, &[&text(path)[..], &ANY_VERSION.to_be_bytes()].concat()).await
    }

    pub(super) async fn exists(&mut self, path: &str) -> anyhow::Result<()> {
        let watch = [0];
        self.request(EXISTS, &[&text(path)[..], &watch].concat()).await
    }

    pub(super) async fn close_session(mut self) -> anyhow::Result<()> {
        self.request(CLOSE_SESSION, &[]).await
    }

    /// Sends a request, and checks that its answer is no error.
    async fn request(&mut self, kind: i32, body: &[u8]) -> anyhow::Result<()> {
        self.number += 1;
        let message = [&self.number.to_be_bytes()[..], &kind.to_be_bytes(), body].concat();
        let answer = self.exchange(&message).await?;
        // After the number of the request and that of the last change.
        ensure!(answer.get(12..16) == Some(&[0; 4]), "ZooKeeper rejected: {answer:?}");
        Ok(())
    }

    async fn exchange(&mut self, message: &[u8]) -> anyhow::Result<Vec<u8>> {
        let length = u32::try_from(message.len())?.to_be_bytes();
        self.stream.write_all(&[&length, message].concat()).await?;
        let length = self.stream.read_u32().await?;
        let mut answer = vec![0; length as usize];
        self.stream.read_exact(&mut answer).await?;
        Ok(answer)
    }
}

/// A text as ZooKeeper encodes it: its length, and its bytes.
fn text(text: &str) -> Vec<u8> {
    let length = i32::try_from(text.len()).expect("the bench uses short texts").to_be_bytes();
    [&length[..], text.as_bytes()].concat()
}
