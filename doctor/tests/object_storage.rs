//! A store that ignores conditions is found. What real ones do is tested by the commands.

use std::{fmt, sync::Mutex};

use async_trait::async_trait;
use doctor::{Verdict, object_storage::check_conditions};
use futures_util::stream::BoxStream;
use object_store::{
    ClientOptions, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, RetryConfig,
    aws::AmazonS3Builder,
    client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService},
    memory::InMemory,
    path::Path,
};
use tokio::time::{Duration, Instant};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    IgnoresConditions,
    IgnoresThatAnObjectExists,
    TakesNoWrites,
    /// As some stores, it answers 501 to If-Match, or to If-None-Match.
    HasNoConditions(&'static str),
    /// As R2, it takes one write a second for each key.
    TakesOneWriteASecond,
}

#[derive(Debug)]
struct Store {
    objects: InMemory,
    fault: Fault,
    last_write: Mutex<Option<Instant>>,
}

impl Store {
    fn with(fault: Fault) -> Self {
        Self { objects: InMemory::new(), fault, last_write: Mutex::default() }
    }

    /// Whether a write comes less than a second after the last one that was let through.
    fn is_too_early(&self) -> bool {
        let mut last_write = self.last_write.lock().unwrap();
        let is_too_early = last_write.is_some_and(|last| last.elapsed() < Duration::from_secs(1));
        if !is_too_early {
            *last_write = Some(Instant::now());
        }
        is_too_early
    }
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

/// The error of the real client of S3 after such an answer.
async fn error_after(status: u16, options: PutOptions) -> Error {
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
    client.unwrap().put_opts(&Path::from("r"), "".into(), options).await.unwrap_err()
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objects.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        match (self.fault, &options.mode) {
            (Fault::IgnoresConditions, _) | (Fault::IgnoresThatAnObjectExists, PutMode::Create) => {
                options.mode = PutMode::Overwrite;
            }
            (Fault::TakesNoWrites, _) => {
                return Err(Error::Generic { store: "store", source: "busy".into() });
            }
            (Fault::HasNoConditions("If-None-Match"), PutMode::Create)
            | (Fault::HasNoConditions("If-Match"), PutMode::Update(_)) => {
                return Err(error_after(501, options).await);
            }
            (Fault::TakesOneWriteASecond, _) if self.is_too_early() => {
                return Err(error_after(429, options).await);
            }
            _ => {}
        }
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn store_that_ignores_conditions_is_unfit_for_a_fence() {
    let (ok, unfit) = (Verdict::Ok, Verdict::UnfitForFence);
    let path = Path::from("examined");
    for (fault, expected) in [
        (Fault::None, &[ok, ok, ok][..]),
        (Fault::IgnoresConditions, &[unfit, unfit, unfit]),
        // The second creation has made the right condition of the replacement a wrong one.
        (Fault::IgnoresThatAnObjectExists, &[unfit, unfit]),
    ] {
        let store = Store::with(fault);
        let checks = check_conditions(&store, &path).await.unwrap();
        let verdicts: Vec<_> = checks.iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, expected, "{fault:?}: {checks:?}");
        store.head(&path).await.expect_err("nothing is left");
    }
    // An outage is no verdict.
    let store = Store::with(Fault::TakesNoWrites);
    check_conditions(&store, &path).await.unwrap_err();
}

#[tokio::test]
async fn store_that_has_no_conditional_writes_is_unfit_and_named_as_such() {
    for (header, name, checks_before) in
        [("If-None-Match", "create", 0), ("If-Match", "replace", 1)]
    {
        let store = Store::with(Fault::HasNoConditions(header));
        let checks = check_conditions(&store, &Path::from("examined")).await.unwrap();
        assert_eq!(checks.len(), checks_before + 1, "{checks:?}");
        let last = checks.last().unwrap();
        assert_eq!((&*last.name, last.verdict), (name, Verdict::UnfitForFence), "{last:?}");
        assert!(last.found.contains("no conditional writes"), "{last:?}");
        assert!(last.found.contains("501"), "{last:?}");
    }
}

/// It honours conditions, and only wants to be asked slowly.
#[tokio::test(start_paused = true)]
async fn store_that_takes_one_write_a_second_for_each_key_is_examined() {
    let store = Store::with(Fault::TakesOneWriteASecond);
    let checks = check_conditions(&store, &Path::from("examined")).await.unwrap();
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok), "{checks:?}");
    assert_eq!(checks.len(), 3);
}
