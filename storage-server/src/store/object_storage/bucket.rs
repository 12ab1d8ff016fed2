//! The folder of a bucket that a URL names.

use std::{error::Error, sync::Arc, time::Duration};

use object_store::{
    BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    path::Path,
};
use url::Url;

use crate::store::error::{OpenError, object_storage_failed};

/// The parameter of the URL that names the server.
pub(crate) const ENDPOINT: &str = "endpoint";
/// The limits of the client: for a connection, for the next bytes of an answer, and for a request, however
/// large its value is.
const LIMITS: [(ClientConfigKey, &str); 3] = [
    (ClientConfigKey::ConnectTimeout, "3s"),
    (ClientConfigKey::ReadTimeout, "4s"),
    (ClientConfigKey::Timeout, "300s"),
];
/// The client's own retries, after a connection that was refused or an error of the server.
const RETRIES: usize = 2;
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// A folder of a bucket, such as `s3://bucket/folder?endpoint=http://127.0.0.1:9000`. The usual variables
/// of the environment (`AWS_ACCESS_KEY_ID` and so on) have the rest.
#[derive(Debug)]
pub(super) struct Bucket {
    /// The address, without the parameters of the URL.
    pub(super) address: String,
    pub(super) client: Arc<dyn ObjectStore>,
    pub(super) folder: Path,
}

impl Bucket {
    /// Parses the URL, and makes a client. Nothing is sent.
    pub(super) fn from_url(text: &str) -> Result<Self, OpenError> {
        let url = Url::parse(text).map_err(invalid)?;
        let name = url.host_str().ok_or_else(|| invalid("the URL has no bucket"))?;
        let folder = Path::from_url_path(url.path()).map_err(invalid)?;
        let mut settings = AmazonS3Builder::from_env().with_bucket_name(name);
        let mut address = format!("s3://{name}/{folder}");
        for (parameter, value) in url.query_pairs() {
            if parameter != ENDPOINT {
                return Err(OpenError::UnknownParameter { parameter: parameter.into_owned() });
            }
            let endpoint = Url::parse(&value).map_err(invalid)?;
            if !endpoint.username().is_empty() || endpoint.password().is_some() {
                return Err(invalid("the endpoint may not have a user: set AWS_ACCESS_KEY_ID"));
            }
            address = format!("{address} at {}", endpoint.origin().ascii_serialization());
            settings = settings
                .with_allow_http(endpoint.scheme() == "http")
                .with_config(AmazonS3ConfigKey::S3Endpoint, value.as_ref());
        }
        for (limit, duration) in LIMITS {
            settings = settings.with_config(AmazonS3ConfigKey::Client(limit), duration);
        }
        // The client is made for TLS, too. An error means that another one has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = settings.with_retry(retries()).build();
        let client = client.map_err(|error| OpenError::Connect {
            database: address.clone(),
            source: object_storage_failed(error),
        })?;
        Ok(Self { address, client: Arc::new(client), folder })
    }
}

fn invalid(reason: impl Into<Box<dyn Error + Send + Sync>>) -> OpenError {
    OpenError::InvalidUrl(sqlx::Error::Configuration(reason.into()))
}

fn retries() -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: RETRY_PAUSE, ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT }
}
