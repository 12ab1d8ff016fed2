//! Questions to a member without a session.

use std::{error::Error, io, sync::Arc, time::Duration};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{failure::Failure, server::Server};
use crate::service_url::Member;

/// Reports of members are shorter, unless there are thousands of connections.
const LONGEST_REPORT: u64 = 1 << 20;

/// Asks a member for one of its reports, such as `srvr`. It may be disabled.
pub(super) async fn report(
    server: &Server,
    member: &Member,
    name: &str,
    limit: Duration,
) -> Result<String, Failure> {
    let lost = |error: io::Error| Failure::unavailable(&member.to_string(), &error.to_string());
    let asking = async {
        let stream = TcpStream::connect((member.host.as_str(), member.port)).await.map_err(lost)?;
        let Some(certificates) = &server.tls else { return read(stream, name).await.map_err(lost) };
        let encrypted = async {
            let host = ServerName::try_from(member.host.clone()).map_err(io::Error::other)?;
            let connector = TlsConnector::from(Arc::new(certificates.live_config()));
            // A rejection of the client's certificate comes behind the handshake.
            read(connector.connect(host, stream).await?, name).await
        };
        encrypted.await.map_err(|error| not_encrypted(member, &error))
    };
    let report = timeout(limit, asking).await;
    report.unwrap_or_else(|_| Err(Failure::silent(&member.to_string(), limit)))
}

/// Finds out why a member took no session. The client underneath does not report it.
pub(super) async fn why_no_session(server: &Server, member: &Member, limit: Duration) -> Failure {
    let address = member.to_string();
    match report(server, member, "srvr", limit).await {
        Err(failure) => failure,
        Ok(report) if report.is_empty() => Failure::closed(
            &address,
            "the connection was closed (does this port take TLS only? are its connections used \
             up, maxClientCnxns?)",
        ),
        Ok(report) if report.contains("not currently serving requests") => {
            Failure::unavailable(&address, "it serves nobody now: it has no quorum, or just starts")
        }
        Ok(_) => Failure::unavailable(&address, "the connection was closed"),
    }
}

async fn read(mut stream: impl AsyncRead + AsyncWrite + Unpin, name: &str) -> io::Result<String> {
    let mut report = Vec::new();
    let asking = async {
        // A port that takes TLS only reads five bytes before it closes the connection.
        stream.write_all(format!("{name}\n").as_bytes()).await?;
        stream.flush().await?;
        stream.take(LONGEST_REPORT).read_to_end(&mut report).await
    };
    match asking.await {
        Err(error) if !is_end(&error) => Err(error),
        _ => Ok(String::from_utf8_lossy(&report).into_owned()),
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
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
        false => Failure::closed(&member, &format!("{reason} (does this port take TLS?)")),
    }
}
