//! The way to a member: a TCP connection, plain or encrypted.

use std::{error::Error, io};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, split},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{failure::Failure, server::Server};
use crate::{backend::BackendError, service_url::Member};

pub(super) type Reading = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writing = Box<dyn AsyncWrite + Send + Unpin>;

/// Connects to a member.
pub(super) async fn open(server: &Server, member: &Member) -> Result<(Reading, Writing), Failure> {
    let lost = |error: io::Error| Failure::unavailable(&member.to_string(), &error.to_string());
    let stream = TcpStream::connect((member.host.as_str(), member.port)).await.map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    match &server.tls {
        None => {
            let (reading, writing) = stream.into_split();
            Ok((Box::new(reading), Box::new(writing)))
        }
        Some(connector) => {
            let encrypted = encrypt(connector, member, stream).await;
            let (reading, writing) = split(encrypted.map_err(|error| failed(member, &error))?);
            Ok((Box::new(reading), Box::new(writing)))
        }
    }
}

async fn encrypt(
    connector: &TlsConnector,
    member: &Member,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(member.host.clone()).map_err(io::Error::other)?;
    connector.connect(name, stream).await
}

/// Why a connection is not encrypted. What TLS itself reports is no matter of time.
fn failed(member: &Member, error: &io::Error) -> Failure {
    let is_of_tls = error.get_ref().is_some_and(|inner| {
        let inner: &(dyn Error + 'static) = inner;
        inner.is::<rustls::Error>()
    });
    let reason = format!("{member}: the encrypted connection failed: {error}");
    Failure::Other(match is_of_tls {
        true => BackendError::Rejected(reason.into()),
        false => BackendError::Unavailable(format!("{reason} (does this port take TLS?)").into()),
    })
}
