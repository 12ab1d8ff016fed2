//! Plain and encrypted connections without a session: to ask a member for its report, and to find out
//! why it took no session.

use std::{error::Error, io, time::Duration};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{
    failure::Failure,
    server::{Member, Server},
};

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects to a member.
pub(super) async fn open(server: &Server, member: &Member) -> Result<Box<dyn Stream>, Failure> {
    let lost = |error: io::Error| Failure::unavailable(&member.to_string(), &error.to_string());
    let stream = TcpStream::connect((member.host.as_str(), member.port)).await.map_err(lost)?;
    let Some(certificates) = &server.tls else { return Ok(Box::new(stream)) };
    let encrypting = async {
        let name = ServerName::try_from(member.host.clone()).map_err(io::Error::other)?;
        TlsConnector::from(certificates.config()).connect(name, stream).await
    };
    match encrypting.await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(not_encrypted(member, &error)),
    }
}

/// Finds out why a member took no session.
pub(super) async fn knock(server: &Server, member: &Member, limit: Duration) -> Failure {
    let closed = || {
        let hint = "has the member a quorum? does this port take TLS only?";
        Failure::unavailable(&member.to_string(), &format!("the connection was closed ({hint})"))
    };
    let knocking = async {
        let mut stream = open(server, member).await?;
        if server.tls.is_some() {
            // A rejection of the client's certificate comes behind the handshake.
            let read = stream.read_u8().await;
            read.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => closed(),
                _ => not_encrypted(member, &error),
            })?;
        }
        Err(closed())
    };
    timeout(limit, knocking).await.unwrap_or_else(|_| Err::<(), _>(closed())).expect_err("it fails")
}

/// Why a connection is not encrypted. What TLS itself reports is no matter of time.
fn not_encrypted(member: &Member, error: &io::Error) -> Failure {
    let is_of_tls = error.get_ref().is_some_and(|inner| {
        let inner: &(dyn Error + 'static) = inner;
        inner.is::<rustls::Error>()
    });
    let (member, reason) =
        (member.to_string(), format!("the encrypted connection failed: {error}"));
    match is_of_tls {
        true => Failure::rejected(&member, &reason),
        false => Failure::unavailable(&member, &format!("{reason} (does this port take TLS?)")),
    }
}
