//! A store in memory whose requests can be held up, and can fail.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures_util::{
    FutureExt, StreamExt, TryStreamExt,
    future::BoxFuture,
    stream::{BoxStream, once},
};
use object_store::{
    ClientOptions, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, RetryConfig,
    aws::AmazonS3Builder,
    client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService},
    memory::InMemory,
    path::Path,
};

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Get,
    Put,
    List,
}

/// What happens before a request of an object or a folder reaches the store.
type Hook = Arc<dyn Fn(Request, &Path) -> BoxFuture<'static, Result<()>> + Send + Sync>;

#[derive(Clone, Default)]
pub(super) struct Flawed {
    /// The store itself, without flaws.
    pub(super) memory: Arc<InMemory>,
    hook: Arc<Mutex<Option<Hook>>>,
    requests: Arc<Mutex<Vec<(Request, Path)>>>,
}

impl Flawed {
    /// Has this happen before each request.
    pub(super) fn before<F>(&self, hook: impl Fn(Request, &Path) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let hook = move |request, path: &Path| hook(request, path).boxed();
        *self.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Has nothing happen any more.
    pub(super) fn mend(&self) {
        *self.hook.lock().unwrap() = None;
    }

    /// How many such requests there were, of objects in whose paths is this text.
    pub(super) fn requests(&self, request: Request, part: &str) -> usize {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|(kind, path)| *kind == request && path.as_ref().contains(part))
            .count()
    }

    async fn request(&self, request: Request, path: &Path) -> Result<()> {
        self.requests.lock().unwrap().push((request, path.clone()));
        let hook = self.hook.lock().unwrap().clone();
        match hook {
            Some(hook) => hook(request, path).await,
            None => Ok(()),
        }
    }
}

/// An error that leaves open whether a request has arrived.
pub(super) fn lost() -> Error {
    Error::Generic { store: "Flawed", source: "the connection broke".into() }
}

/// Answers each request with a status.
#[derive(Clone, Copy, Debug)]
struct Answers(u16);

#[async_trait]
impl HttpService for Answers {
    async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut answer = HttpResponse::new(Vec::new().into());
        *answer.status_mut() = self.0.try_into().unwrap();
        Ok(answer)
    }
}

impl HttpConnector for Answers {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(*self))
    }
}

/// The error of the real client of S3 after such an answer to a write on a condition.
pub(super) async fn answered(status: u16) -> Error {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = AmazonS3Builder::new()
        .with_endpoint("http://answers")
        .with_allow_http(true)
        .with_bucket_name("bucket")
        .with_access_key_id("key")
        .with_secret_access_key("secret")
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_http_connector(Answers(status))
        .build();
    let options = PutOptions::from(PutMode::Create);
    client.unwrap().put_opts(&Path::from("r"), "".into(), options).await.unwrap_err()
}

impl fmt::Debug for Flawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flawed")
    }
}

impl fmt::Display for Flawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flawed")
    }
}

#[async_trait]
impl ObjectStore for Flawed {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.request(Request::Put, location).await?;
        self.memory.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("nothing is sent in parts")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.request(Request::Get, location).await?;
        self.memory.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.memory.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (flawed, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            flawed.request(Request::List, &prefix.clone().unwrap_or_default()).await?;
            Ok::<_, Error>(flawed.memory.list(prefix.as_ref()))
        };
        once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.request(Request::List, &prefix.cloned().unwrap_or_default()).await?;
        self.memory.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.memory.copy_opts(from, to, options).await
    }
}
