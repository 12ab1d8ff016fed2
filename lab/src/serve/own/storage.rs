//! A storage server of your own, whose decisions are shown as they happen.

use std::{convert::Infallible, fs, path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use axum::http::{HeaderValue, header::AUTHORIZATION};
use fence::ResourceName;
use futures_util::stream::{Stream, unfold};
use lock_client::storage::Storage;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, redirect};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::with_causes;
use crate::serve::http::LAST_EVENT_ID;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a stream may be silent. The server gives a sign of life every 10 s.
const SILENT_FOR: Duration = Duration::from_secs(25);
/// The longest event, in bytes.
const MOST_BYTES: usize = 64 << 10;

/// A storage server that is watched.
#[derive(Clone, Debug)]
pub(super) struct OwnStorage {
    url: Url,
    /// With the bearer token, if there is one. It is never shown.
    authorization: Option<HeaderValue>,
    client: Client,
}

impl OwnStorage {
    /// Makes a client of a storage server, with the bearer token in this file.
    ///
    /// # Errors
    /// If the URL or the token can't be used. If the token would be sent to another machine unencrypted.
    pub(super) fn open(url: &str, token_file: Option<&Path>) -> anyhow::Result<Self> {
        let read = |file: &Path| {
            let text = fs::read_to_string(file);
            text.with_context(|| format!("can't read {}", file.display()))
        };
        let token = token_file.map(read).transpose()?.map(|token| token.trim().to_owned());
        let storage = Storage::new(url)?;
        let mut authorization = None;
        if let Some(token) = token {
            storage.bearer_token(&token)?;
            let mut header = HeaderValue::try_from(format!("Bearer {token}"))?;
            header.set_sensitive(true);
            authorization = Some(header);
        }
        Ok(Self { url: url.parse()?, authorization, client: client() })
    }

    pub(super) fn address(&self) -> String {
        let port = self.url.port_or_known_default().unwrap_or_default();
        format!("{}:{port}", self.url.host_str().unwrap_or_default())
    }

    /// The fence of a resource; null if it has none.
    pub(super) async fn fence(&self, name: &str) -> Result<Value, String> {
        let name: ResourceName = name.parse().map_err(|_| format!("{name:?} is no resource"))?;
        let exchange = async {
            let answer = self.request("fences", name.as_str().split('/')).send().await?;
            Ok::<_, reqwest::Error>((answer.status(), answer.text().await?))
        };
        let answer = timeout(ANSWER_TIMEOUT, exchange).await;
        match answer.map_err(|_| self.silent())?.map_err(|error| self.failed(error))? {
            (StatusCode::OK, body) => serde_json::from_str(&body).map_err(|_| self.strange()),
            (StatusCode::NOT_FOUND, _) => Ok(Value::Null),
            (status, _) => Err(self.rejected(status)),
        }
    }

    /// The server's events after this one, or from now on. If they don't come any more, an event of the
    /// lab's own says why, and is the last.
    pub(super) fn events(
        &self,
        last_event_id: Option<HeaderValue>,
    ) -> impl Stream<Item = Result<Vec<u8>, Infallible>> + use<> {
        let opening = Stage::Opening { storage: Arc::new(self.clone()), last_event_id };
        unfold(opening, async |stage: Stage| {
            let (text, stage) = stage.next().await?;
            Some((Ok(text), stage))
        })
    }

    async fn open_events(&self, last_event_id: Option<HeaderValue>) -> Result<Response, String> {
        let mut request = self.request("events", []);
        if let Some(id) = last_event_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let answer = timeout(ANSWER_TIMEOUT, request.send()).await;
        let answer = answer.map_err(|_| self.silent())?.map_err(|error| self.failed(error))?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            status => Err(self.rejected(status)),
        }
    }

    fn request<'a>(&self, kind: &str, name: impl IntoIterator<Item = &'a str>) -> RequestBuilder {
        let mut url = self.url.clone();
        let mut path = url.path_segments_mut().expect("a URL with a host has a path");
        path.pop_if_empty().extend(["v1", kind]).extend(name);
        drop(path);
        let request = self.client.get(url);
        match &self.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        }
    }

    fn silent(&self) -> String {
        format!("{} does not answer", self.address())
    }

    fn strange(&self) -> String {
        format!("{} answers like no storage server", self.address())
    }

    fn rejected(&self, status: StatusCode) -> String {
        format!("{} answers {status}", self.address())
    }

    /// The URL may have a password.
    fn failed(&self, error: reqwest::Error) -> String {
        format!("{}: {}", self.address(), with_causes(error.without_url()))
    }
}

/// How far a stream of events is.
enum Stage {
    Opening { storage: Arc<OwnStorage>, last_event_id: Option<HeaderValue> },
    Open { storage: Arc<OwnStorage>, answer: Response, begun: Vec<u8> },
    Ended,
}

impl Stage {
    /// Waits for whole events, and returns them.
    async fn next(self) -> Option<(Vec<u8>, Self)> {
        let (storage, mut answer, mut begun) = match self {
            Self::Opening { storage, last_event_id } => {
                match storage.open_events(last_event_id).await {
                    Ok(answer) => (storage, answer, Vec::new()),
                    Err(reason) => return Some((unreachable(&reason), Self::Ended)),
                }
            }
            Self::Open { storage, answer, begun } => (storage, answer, begun),
            Self::Ended => return None,
        };
        let reason = loop {
            match timeout(SILENT_FOR, answer.chunk()).await {
                Ok(Ok(Some(chunk))) => begun.extend_from_slice(&chunk),
                Ok(Ok(None)) => break format!("{} has ended the stream", storage.address()),
                Ok(Err(error)) => break storage.failed(error),
                Err(_) => break storage.silent(),
            }
            // A part of an event would be garbled by what follows if the rest never comes.
            if let Some(end) = begun.windows(2).rposition(|pair| pair == b"\n\n") {
                let rest = begun.split_off(end + 2);
                return Some((begun, Self::Open { storage, answer, begun: rest }));
            }
            if begun.len() > MOST_BYTES {
                break storage.strange();
            }
        };
        Some((unreachable(&reason), Self::Ended))
    }
}

/// Tells the page that there are no events now. Its browser tries again after a second.
fn unreachable(reason: &str) -> Vec<u8> {
    format!("retry: 1000\nevent: unreachable\ndata: {}\n\n", json!({"reason": reason})).into_bytes()
}

/// A client that trusts what the system trusts.
fn client() -> Client {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the ciphers of all versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Client::builder().tls_backend_preconfigured(config).no_proxy();
    client.redirect(redirect::Policy::none()).build().expect("the settings fit")
}
