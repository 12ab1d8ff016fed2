//! A folder in a bucket of object storage.

use std::sync::Arc;

use anyhow::{Context, ensure};
use object_store::{
    ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    client::HttpConnector,
    path::Path,
};
use reqwest::Url;

/// A folder in a bucket, which a URL names.
pub(crate) struct Bucket {
    settings: AmazonS3Builder,
    folder: Path,
    endpoint: Option<String>,
}

impl Bucket {
    /// Parses `s3://BUCKET/FOLDER`, which may end with `?endpoint=URL`. Keys and the region come from
    /// the variables `AWS_…`.
    ///
    /// # Errors
    /// If it is no such URL.
    pub(crate) fn from_url(url: &str) -> anyhow::Result<Self> {
        let url = Url::parse(url).context("the database URL is not a URL")?;
        let name = url.host_str().context("the database URL has no bucket")?;
        let mut settings = AmazonS3Builder::from_env().with_bucket_name(name);
        let mut endpoint = None;
        for (name, value) in url.query_pairs() {
            ensure!(name == "endpoint", "the database URL has the unknown parameter '{name}'");
            settings = settings
                .with_allow_http(value.starts_with("http://"))
                .with_config(AmazonS3ConfigKey::S3Endpoint, value.as_ref());
            endpoint = Some(value.into_owned());
        }
        Ok(Self { settings, folder: Path::from_url_path(url.path())?, endpoint })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server, if the URL names one.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// Makes a client with connections of its own, which repeats requests as often as this.
    ///
    /// # Errors
    /// If the settings contradict each other.
    pub(crate) fn client(&self, max_retries: usize) -> anyhow::Result<Arc<dyn ObjectStore>> {
        build(self.settings.clone(), max_retries)
    }

    /// Makes a client whose requests go through a connector.
    ///
    /// # Errors
    /// If the settings contradict each other.
    pub(crate) fn client_through(
        &self,
        connector: impl HttpConnector,
        max_retries: usize,
    ) -> anyhow::Result<Arc<dyn ObjectStore>> {
        build(self.settings.clone().with_http_connector(connector), max_retries)
    }
}

fn build(settings: AmazonS3Builder, max_retries: usize) -> anyhow::Result<Arc<dyn ObjectStore>> {
    // The client of S3 is made for TLS, too. An error means that another one has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig { max_retries, ..RetryConfig::default() };
    Ok(Arc::new(settings.with_retry(retry).build()?))
}
