//! A Redis Cluster.

use std::{fmt, time::Duration};

use redis::{Client, ConnectionInfo, ErrorKind, RedisError, RedisResult, cluster::ClusterClient};

use super::{
    super::{
        settings::{TimeLimits, closed, tcp_settings, within},
        transport::Transport,
    },
    certificates::{Certificates, UsedCertificates},
    url::{RedisUrl, connection_info, connection_settings, rejected},
};
use crate::service_url::{InvalidUrl, addresses};

/// How often the `redis` crate repeats a request by itself: where a node has moved a slot or was
/// lost, or while a slot is moved. After that, its last answer is returned, and the request is
/// repeated like any other.
const REPETITIONS: u32 = 3;

pub(super) struct Cluster {
    /// The nodes that the URL names. Each receives what is published on any node.
    named: Vec<ConnectionInfo>,
    certificates: Certificates,
    hosts: String,
}

impl Cluster {
    pub(super) fn parse(url: &RedisUrl<'_>) -> Result<Self, InvalidUrl> {
        let parts = &url.parts;
        if !parts.path.is_empty() {
            return Err(InvalidUrl::new("a Cluster has no databases to choose from"));
        }
        let settings = connection_settings(parts)?;
        let named = url.addresses().into_iter().map(|address| connection_info(address, &settings));
        Ok(Self {
            named: named.collect::<RedisResult<_>>().map_err(rejected)?,
            certificates: Certificates::open(url)?,
            hosts: addresses(&parts.members),
        })
    }

    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<Transport> {
        let certificates = self.certificates.current();
        let builder = ClusterClient::builder(self.named.clone());
        #[cfg(feature = "tls")]
        let builder = match certificates.pem() {
            Some(named) => builder.certs(named),
            None => builder,
        };
        // The pauses, and the repetitions, fit into the time for an answer.
        let pause = |part: u32| (limits.answer / part).max(Duration::from_millis(1));
        let client = builder
            .connection_timeout(limits.connecting())
            .response_timeout(limits.answer)
            .retries(REPETITIONS)
            .min_retry_wait(pause(50).as_millis().try_into().unwrap_or(u64::MAX))
            .max_retry_wait(pause(10).as_millis().try_into().unwrap_or(u64::MAX))
            .tcp_settings(tcp_settings())
            .build()?;
        match within(limits.finding(), client.get_async_connection()).await {
            Ok(connection) => Ok(Transport::Cluster(connection, certificates)),
            Err(error) => Err(self.rejected_password(&certificates, limits).await.unwrap_or(error)),
        }
    }

    /// Asks the named nodes whether they reject the password. The `redis` crate reports all failures
    /// of a Cluster as lost connections.
    async fn rejected_password(
        &self,
        certificates: &UsedCertificates,
        limits: TimeLimits,
    ) -> Option<RedisError> {
        for node in &self.named {
            let (node, settings) = (certificates.client(node.clone()), limits.settings());
            let answer =
                match node.ok()?.get_multiplexed_async_connection_with_config(&settings).await {
                    Ok(mut node) => redis::cmd("PING").query_async::<()>(&mut node).await,
                    Err(error) => Err(error),
                };
            if let Err(error) = answer
                && (error.kind() == ErrorKind::AuthenticationFailed
                    || error.code() == Some("NOAUTH"))
            {
                return Some(error);
            }
        }
        None
    }

    pub(super) async fn node(&self, limits: TimeLimits) -> RedisResult<Client> {
        let mut error = closed("no node is named");
        for node in &self.named {
            let (node, settings) =
                (self.certificates.current().client(node.clone())?, limits.settings());
            match node.get_multiplexed_async_connection_with_config(&settings).await {
                Ok(_) => return Ok(node),
                Err(other) => error = other,
            }
        }
        Err(error)
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster {}", self.hosts)
    }
}
