//! As much HTTP as it takes to ask a server about itself.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// How long a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Sends a request without a body, such as `GET /health`, and returns the answer with its headers.
///
/// # Errors
/// If there is no answer within a second.
pub(crate) async fn ask(address: SocketAddr, request: &str) -> anyhow::Result<String> {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        // With this version, the server closes the connection after its answer.
        stream.write_all(format!("{request} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    timeout(TIMEOUT, asking).await?
}
