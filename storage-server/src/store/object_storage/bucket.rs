//! The folder of a bucket that a URL names.

use std::{error::Error, sync::Arc, time::Duration};

use fence::object_store::Registers;
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
/// The client's own retries, after a connection that was rejected or an error of the server.
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
    /// Repeats no request by itself. A register repeats its writes, and must know each answer.
    pub(super) writer: Arc<dyn ObjectStore>,
    pub(super) folder: Path,
}

impl Bucket {
    /// Parses the URL, and makes a client. Nothing is sent.
    pub(super) fn from_url(text: &str) -> Result<Self, OpenError> {
        let url = Url::parse(text).map_err(invalid)?;
        let name = url.host_str().ok_or_else(|| invalid("the URL has no bucket"))?;
        if url.port().is_some() {
            return Err(invalid(
                "a bucket has no port: name the server with ?endpoint=http://HOST:PORT",
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("the URL may not have a user: set AWS_ACCESS_KEY_ID"));
        }
        if url.fragment().is_some() {
            return Err(invalid("the URL may not have a fragment: write # as %23"));
        }
        let folder = Path::from_url_path(url.path()).map_err(invalid)?;
        let mut settings = AmazonS3Builder::from_env().with_bucket_name(name);
        let mut address = format!("s3://{name}/{folder}");
        if url.query_pairs().filter(|(parameter, _)| parameter == ENDPOINT).count() > 1 {
            return Err(invalid("the URL has several endpoints"));
        }
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
        let client = |max_retries| match settings.clone().with_retry(retries(max_retries)).build() {
            Ok(client) => Ok(Arc::new(client)),
            Err(error) => Err(OpenError::Connect {
                database: address.clone(),
                source: object_storage_failed(error),
            }),
        };
        let (client, writer) = (client(RETRIES)?, client(0)?);
        Ok(Self { address, client, writer, folder })
    }

    pub(super) fn registers(&self) -> Registers {
        Registers::new(self.client.clone(), self.folder.clone()).with_writer(self.writer.clone())
    }
}

fn invalid(reason: impl Into<Box<dyn Error + Send + Sync>>) -> OpenError {
    OpenError::InvalidUrl(sqlx::Error::Configuration(reason.into()))
}

fn retries(max_retries: usize) -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: RETRY_PAUSE, ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries, retry_timeout: RETRY_TIMEOUT }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::with_causes;

    #[test]
    fn parts_of_a_url_that_would_mean_nothing_are_rejected() {
        let bucket = Bucket::from_url("s3://bucket/a/b?endpoint=http://127.0.0.1:9000").unwrap();
        assert_eq!(bucket.address, "s3://bucket/a/b at http://127.0.0.1:9000");
        for (wrong, reason) in [
            ("s3://localhost:9000/bucket", "?endpoint="),
            ("s3://key@bucket/folder", "AWS_ACCESS_KEY_ID"),
            ("s3://key:secret@bucket/folder", "AWS_ACCESS_KEY_ID"),
            ("s3://:secret@bucket/folder", "AWS_ACCESS_KEY_ID"),
            ("s3://bucket/folder?endpoint=http://key:secret@host", "AWS_ACCESS_KEY_ID"),
            ("s3://bucket/folder#1", "%23"),
            ("s3://bucket/folder?endpoint=http://a&endpoint=http://b", "several endpoints"),
            ("s3:///folder", "no bucket"),
        ] {
            let error = with_causes(&Bucket::from_url(wrong).unwrap_err());
            assert!(error.contains(reason), "{wrong}: {error}");
            assert!(!error.contains("secret"), "{wrong}: {error}");
        }
        let unknown = Bucket::from_url("s3://bucket/folder?endpont=http://a").unwrap_err();
        assert!(matches!(unknown, OpenError::UnknownParameter { .. }), "{unknown:?}");
    }
}
