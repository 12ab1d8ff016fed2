//! Connections to the members of etcd.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::RootCertStore;
use tower_service::Service;

use super::server::Server;
use crate::tls;

/// How long a connection is idle before it is probed.
const KEEPALIVE_TIME: Duration = Duration::from_secs(10);
/// The time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes connections. Each encrypted one has the certificates that the files hold then.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    certificates: Option<tls::Certificates>,
}

impl Connector {
    pub(super) fn new(server: &Server) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE_TIME));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT));
        Self { tcp, certificates: server.certificates.clone() }
    }
}

type Connecting = HttpsConnector<HttpConnector>;

impl Service<Uri> for Connector {
    type Response = <Connecting as Service<Uri>>::Response;
    type Error = <Connecting as Service<Uri>>::Error;
    type Future = <Connecting as Service<Uri>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, member: Uri) -> Self::Future {
        let config = match &self.certificates {
            Some(certificates) => certificates.current().config(),
            // No connection is encrypted.
            None => tls::trusting(RootCertStore::empty()).with_no_client_auth(),
        };
        let connector = HttpsConnectorBuilder::new().with_tls_config(config);
        connector.https_or_http().enable_http1().wrap_connector(self.tcp.clone()).call(member)
    }
}
