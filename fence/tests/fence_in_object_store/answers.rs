//! Answers of a store that reject a write for certain, or leave open what happened to it.
//!
//! The client of S3 is the real one. Beneath it, an HTTP service in memory answers from a script.

use std::{
    collections::VecDeque,
    io, mem,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use fence::object_store::{Outcome, Register, RegisterError, Registers};
use http_body_util::BodyExt;
use object_store::{
    ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, Result, RetryConfig, UpdateVersion,
    aws::AmazonS3Builder,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    },
    memory::InMemory,
    path::Path,
};
use tokio::time::{Duration, Instant};

use super::{applied, is_unknown, offer};
use crate::names::name;

/// What happens to a PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scripted {
    /// It is answered with this status, and not executed.
    Status(u16),
    /// It is executed, and answered with this status.
    ExecutedThen(u16),
    /// It is executed later, and no answer arrives.
    Late,
}
use Scripted::{ExecutedThen, Late, Status};

/// A store of S3 in memory. Each PUT takes the next act of the script; once that is over, PUTs are
/// executed as they should be.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptedS3 {
    objects: Arc<InMemory>,
    script: Arc<Mutex<VecDeque<Scripted>>>,
    puts: Arc<Mutex<Vec<Instant>>>,
    late: Arc<Mutex<Vec<HttpRequest>>>,
    /// Whether reads fail.
    rejects_reads: Arc<Mutex<bool>>,
}

impl ScriptedS3 {
    /// Makes a client of it, which repeats a request by itself so often.
    pub(super) fn client(&self, max_retries: usize) -> Arc<dyn ObjectStore> {
        let client = AmazonS3Builder::new()
            .with_endpoint("http://scripted")
            .with_allow_http(true)
            .with_bucket_name("bucket")
            .with_access_key_id("key")
            .with_secret_access_key("secret")
            .with_retry(RetryConfig { max_retries, ..RetryConfig::default() })
            .with_http_connector(self.clone());
        let _ = rustls::crypto::ring::default_provider().install_default();
        Arc::new(client.build().unwrap())
    }

    pub(super) fn script(&self, script: impl IntoIterator<Item = Scripted>) {
        *self.script.lock().unwrap() = script.into_iter().collect();
    }

    fn register(&self, max_retries: usize) -> Register {
        Registers::new(self.client(max_retries), Path::ROOT).register(&name("r"))
    }

    /// Returns the times of the PUTs since this was last called.
    fn take_puts(&self) -> Vec<Instant> {
        mem::take(&mut *self.puts.lock().unwrap())
    }

    async fn deliver_late_requests(&self) {
        let late = mem::take(&mut *self.late.lock().unwrap());
        for request in late {
            self.put(request).await;
        }
    }

    async fn put(&self, request: HttpRequest) -> HttpResponse {
        let header = |name| Some(request.headers().get(name)?.to_str().unwrap().to_owned());
        let mode = match (header("if-match"), header("if-none-match")) {
            (Some(e_tag), None) => {
                PutMode::Update(UpdateVersion { e_tag: Some(e_tag), version: None })
            }
            (None, Some(_)) => PutMode::Create,
            other => panic!("{other:?}"),
        };
        let path = path(&request);
        let payload = request.into_body().collect().await.unwrap().to_bytes();
        match self.objects.put_opts(&path, payload.into(), mode.into()).await {
            Ok(put) => answer(200, put.e_tag),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => answer(412, None),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The name of the object, without the bucket's.
fn path(request: &HttpRequest) -> Path {
    Path::from_url_path(request.uri().path().strip_prefix("/bucket").unwrap()).unwrap()
}

fn answer(status: u16, e_tag: Option<String>) -> HttpResponse {
    let mut answer = HttpResponse::new(Vec::new().into());
    *answer.status_mut() = status.try_into().unwrap();
    if let Some(e_tag) = e_tag {
        answer.headers_mut().insert("etag", e_tag.parse().unwrap());
    }
    answer
}

impl HttpConnector for ScriptedS3 {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for ScriptedS3 {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if request.method() == "GET" {
            if *self.rejects_reads.lock().unwrap() {
                return Ok(answer(403, None));
            }
            let Ok(found) = self.objects.get(&path(&request)).await else {
                return Ok(answer(404, None));
            };
            let mut read = answer(200, found.meta.e_tag.clone());
            let headers = read.headers_mut();
            headers.insert("content-length", found.meta.size.into());
            headers.insert("last-modified", "Sat, 28 Nov 2026 00:00:00 GMT".parse().unwrap());
            *read.body_mut() = found.bytes().await.unwrap().into();
            return Ok(read);
        }
        assert_eq!(request.method(), "PUT");
        self.puts.lock().unwrap().push(Instant::now());
        let scripted = self.script.lock().unwrap().pop_front();
        match scripted {
            None => Ok(self.put(request).await),
            Some(Status(status)) => Ok(answer(status, None)),
            Some(ExecutedThen(status)) => {
                self.put(request).await;
                Ok(answer(status, None))
            }
            Some(Late) => {
                self.late.lock().unwrap().push(request);
                Err(HttpError::new(HttpErrorKind::Timeout, io::Error::other("no answer")))
            }
        }
    }
}

/// The error of the real client after such an answer to a write on a condition.
pub(super) async fn error_after(status: u16) -> Error {
    let s3 = ScriptedS3::default();
    s3.script([Status(status)]);
    let put = s3.client(0).put_opts(&Path::from("r"), "".into(), PutMode::Create.into()).await;
    put.unwrap_err()
}

/// Claims with a client that repeats nothing, and runs the script against a write.
async fn write(script: &[Scripted]) -> (ScriptedS3, Result<Outcome<()>, RegisterError>) {
    let (s3, written) = write_with_retries(script, 0).await;
    (s3, written)
}

async fn write_with_retries(
    script: &[Scripted],
    max_retries: usize,
) -> (ScriptedS3, Result<Outcome<()>, RegisterError>) {
    let s3 = ScriptedS3::default();
    let mut register = s3.register(max_retries);
    assert_eq!(applied(register.claim(&offer(34, "a")).await).version, 1);
    s3.take_puts();
    s3.script(script.iter().copied());
    let written = register.write(&offer(34, "a"), "70".into()).await;
    let written = written.map(|outcome| match outcome {
        Outcome::Applied(_) => Outcome::Applied(()),
        Outcome::Rejected(rejection) => Outcome::Rejected(rejection),
        Outcome::Unknown(unknown) => Outcome::Unknown(unknown),
    });
    s3.script([]);
    s3.deliver_late_requests().await;
    (s3, written)
}

async fn version(s3: &ScriptedS3) -> u64 {
    s3.register(0).read().await.unwrap().version
}

#[tokio::test(start_paused = true)]
async fn write_that_was_rejected_each_time_has_changed_nothing() {
    // R2 takes one write a second for each key. S3 has another write of the key under way.
    for status in [429, 409, 403, 400] {
        let (s3, written) = write(&[Status(status); 99]).await;
        let Err(RegisterError::Store { source, .. }) = &written else {
            panic!("{status}: {written:?}")
        };
        assert!(source.to_string().contains(&status.to_string()), "{source}");
        assert_eq!(version(&s3).await, 1);
    }
    // The control: an error of the server leaves open what happened.
    for status in [500, 503, 408] {
        let (_, written) = write(&[Status(status); 99]).await;
        assert!(matches!(written, Ok(Outcome::Unknown(_))), "{status}: {written:?}");
    }
}

/// The same handle goes on, because it knows the register.
#[tokio::test(start_paused = true)]
async fn write_goes_on_after_rejections() {
    for script in [&[Status(429)][..], &[Status(409)], &[Status(409), Status(429), Status(409)]] {
        let (s3, written) = write(script).await;
        assert!(matches!(written, Ok(Outcome::Applied(()))), "{script:?}: {written:?}");
        assert_eq!(version(&s3).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn rejection_does_not_hide_an_earlier_attempt() {
    for first in [Late, Status(500), Status(503), Status(408)] {
        for status in [429, 409, 403, 501] {
            let mut script = [Status(status); 99];
            script[0] = first;
            let (s3, written) = write(&script).await;
            assert!(matches!(written, Ok(Outcome::Unknown(_))), "{first:?} {status}: {written:?}");
            // It landed after that.
            assert_eq!(version(&s3).await, if first == Late { 2 } else { 1 });
        }
    }
    // It was executed, and is found.
    let (_, written) = write(&[ExecutedThen(500), Status(429)]).await;
    assert!(matches!(written, Ok(Outcome::Applied(()))), "{written:?}");
}

/// The client of the store repeats requests by itself, and returns the last answer only.
#[tokio::test(start_paused = true)]
async fn rejection_does_not_hide_an_attempt_of_the_stores_own_client() {
    for first in [Status(500), Status(503), Status(429)] {
        for status in [429, 409, 403, 501] {
            let mut script = [Status(status); 99];
            script[0] = first;
            let (_, written) = write_with_retries(&script, 2).await;
            assert!(matches!(written, Ok(Outcome::Unknown(_))), "{first:?} {status}: {written:?}");
        }
    }
    // With a client of their own that repeats nothing, writes are known.
    let s3 = ScriptedS3::default();
    let registers = Registers::new(s3.client(2), Path::ROOT).with_writer(s3.client(0));
    let mut register = registers.register(&name("r"));
    s3.script([Status(429); 99]);
    let claimed = register.claim(&offer(34, "a")).await;
    assert!(matches!(claimed, Err(RegisterError::Store { .. })), "{claimed:?}");
}

#[tokio::test(start_paused = true)]
async fn rejected_write_that_cannot_be_read_back_has_changed_nothing() {
    for (status, is_known) in [(429, true), (409, true), (403, true), (500, false)] {
        let s3 = ScriptedS3::default();
        let mut register = s3.register(0);
        let _ = applied(register.claim(&offer(34, "a")).await);
        s3.script([Status(status)]);
        *s3.rejects_reads.lock().unwrap() = true;
        let written = register.write(&offer(34, "a"), "70".into()).await;
        assert_eq!(matches!(written, Err(RegisterError::Store { .. })), is_known, "{written:?}");
        assert_eq!(is_unknown(&written), !is_known, "{written:?}");
    }
}

/// A store that takes one write a second for each key is asked again after more than a second.
#[tokio::test(start_paused = true)]
async fn wait_after_too_many_requests_is_longer_than_after_an_error_of_the_server() {
    let shortest_wait = async |status| {
        let (s3, _) = write(&[Status(status); 99]).await;
        let puts = s3.take_puts();
        assert_eq!(puts.len(), 4);
        puts.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap()
    };
    let (throttled, failed) = (shortest_wait(429).await, shortest_wait(503).await);
    assert!(throttled >= Duration::from_secs(1), "{throttled:?}");
    assert!(failed >= Duration::from_millis(50), "{failed:?}");
    assert!(throttled > 2 * failed, "{throttled:?} {failed:?}");
}

#[tokio::test(start_paused = true)]
async fn store_without_conditional_writes_is_named_as_such() {
    // A claim creates the register: If-None-Match. A write replaces it: If-Match.
    let s3 = ScriptedS3::default();
    s3.script([Status(501); 99]);
    let created = s3.register(0).claim(&offer(34, "a")).await;
    assert_eq!(s3.take_puts().len(), 1, "repeating does not help");
    let created = created.unwrap_err();
    let (_, replaced) = write(&[Status(501); 99]).await;
    for error in [created, replaced.unwrap_err()] {
        assert!(matches!(error, RegisterError::NoConditionalWrites { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("no conditional writes") && text.contains("If-Match"), "{text}");
    }
    // Also if the client of the store has repeated it, so that the outcome is not known.
    let (_, written) = write_with_retries(&[Status(501); 99], 2).await;
    let Ok(Outcome::Unknown(unknown)) = written else { panic!("{written:?}") };
    let source = std::error::Error::source(&unknown).unwrap().to_string();
    assert!(source.contains("If-Match"), "{source}");
}
