//! A folder in a bucket of object storage.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use object_store::{
    ObjectStore, RetryConfig, aws::AmazonS3Builder, azure::MicrosoftAzureBuilder,
    client::HttpConnector, path::Path,
};
use reqwest::Url;

/// A folder in a bucket, which a URL names.
pub(crate) struct Bucket {
    settings: Settings,
    folder: Path,
    endpoint: Option<String>,
}

#[derive(Clone)]
enum Settings {
    S3(AmazonS3Builder),
    Azure(MicrosoftAzureBuilder),
}

impl Bucket {
    /// Parses `s3://BUCKET/FOLDER` or `az://CONTAINER/FOLDER`, which may end with `?endpoint=URL`. Keys,
    /// the region and the account come from the variables `AWS_…` and `AZURE_…`.
    ///
    /// # Errors
    /// If it is no such URL.
    pub(crate) fn from_url(url: &str) -> anyhow::Result<Self> {
        let url = Url::parse(url).context("the database URL is not a URL")?;
        let name = url.host_str().context("the database URL has no bucket")?;
        let mut settings = match url.scheme() {
            "s3" => Settings::S3(AmazonS3Builder::from_env().with_bucket_name(name)),
            "az" => Settings::Azure(MicrosoftAzureBuilder::from_env().with_container_name(name)),
            scheme => bail!("{scheme}: is no object storage that the lab knows"),
        };
        let mut endpoint = None;
        for (name, value) in url.query_pairs() {
            ensure!(name == "endpoint", "the database URL has the unknown parameter '{name}'");
            settings = settings.with_endpoint(&value);
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
        self.settings.clone().build(max_retries)
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
        let settings = match self.settings.clone() {
            Settings::S3(settings) => Settings::S3(settings.with_http_connector(connector)),
            Settings::Azure(settings) => Settings::Azure(settings.with_http_connector(connector)),
        };
        settings.build(max_retries)
    }
}

impl Settings {
    /// Names the server.
    fn with_endpoint(self, endpoint: &str) -> Self {
        let is_plain = endpoint.starts_with("http://");
        match self {
            Self::S3(settings) => {
                Self::S3(settings.with_endpoint(endpoint).with_allow_http(is_plain))
            }
            Self::Azure(settings) => {
                let settings = settings.with_endpoint(endpoint.to_owned());
                Self::Azure(settings.with_allow_http(is_plain))
            }
        }
    }

    fn build(self, max_retries: usize) -> anyhow::Result<Arc<dyn ObjectStore>> {
        // The clients are made for TLS, too. An error means that another one has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig { max_retries, ..RetryConfig::default() };
        Ok(match self {
            Self::S3(settings) => Arc::new(settings.with_retry(retry).build()?),
            Self::Azure(settings) => Arc::new(settings.with_retry(retry).build()?),
        })
    }
}
