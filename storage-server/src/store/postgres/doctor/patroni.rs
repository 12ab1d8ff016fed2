//! The settings of a Patroni, at its REST address. SQL does not show them.

use std::{str::FromStr, time::Duration};

use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value};
use tokio::{net::TcpStream, time::timeout};
use tokio_util::task::AbortOnDropHandle;
use url::{Position, Url};

use crate::store::doctor::{Finding, Verdict};

const PORT: u16 = 8008;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// More than any configuration has.
const MAX_BYTES: usize = 1 << 20;

/// The REST address of a Patroni, such as `http://db1:8008`.
#[derive(Clone, Debug)]
pub(crate) struct PatroniUrl(Url);

impl FromStr for PatroniUrl {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let url = Url::parse(text).context("it is no URL")?;
        ensure!(url.scheme() == "http" && url.has_host(), "it must be like http://HOST:{PORT}");
        Ok(Self(url))
    }
}

/// What is known of a Patroni.
#[derive(Debug)]
pub(super) enum Patroni {
    NotSeen,
    /// It has a session in the database.
    Seen,
    /// It did not say, for this reason.
    Silent(String),
    /// It says what it does.
    Settings {
        /// Commits wait for a standby, and no other one is promoted.
        synchronous_mode: bool,
        /// They wait also if no standby is left.
        strict: bool,
    },
}

impl Patroni {
    pub(super) async fn ask(PatroniUrl(url): &PatroniUrl) -> Self {
        let asked = timeout(ANSWER_TIMEOUT, configuration(url)).await;
        let late = |_| Err(anyhow!("no answer within {} s", ANSWER_TIMEOUT.as_secs()));
        match asked.unwrap_or_else(late) {
            Ok(configuration) => {
                let is_on = |name| configuration.get(name).is_some_and(is_on);
                Self::Settings {
                    synchronous_mode: is_on("synchronous_mode"),
                    strict: is_on("synchronous_mode_strict"),
                }
            }
            Err(error) => Self::Silent(format!("it did not answer: {error:#}")),
        }
    }

    /// Whether it never promotes a standby that a commit does not wait for.
    pub(super) fn chooses_synchronous_ones(&self) -> bool {
        matches!(self, Self::Settings { synchronous_mode: true, .. })
    }

    /// `None` if it was not seen.
    pub(super) fn finding(&self) -> Option<Finding> {
        let (verdict, found) = match self {
            Self::NotSeen => return None,
            Self::Seen => (Verdict::Unknown, "it has a session: give --patroni".to_owned()),
            Self::Silent(reason) => (Verdict::Unknown, reason.clone()),
            Self::Settings { synchronous_mode, strict } => (
                Verdict::wrong_if(!(*synchronous_mode && *strict)),
                format!("synchronous_mode: {synchronous_mode}, synchronous_mode_strict: {strict}"),
            ),
        };
        Some(Finding {
            check: "patroni",
            verdict,
            found,
            why: "Without synchronous_mode, Patroni may promote a standby that lacks the last commits. \
                  Without synchronous_mode_strict, it lets them wait for no standby once none is left, \
                  also those that wait already: set it, or start each server with \
                  --require-sync-standby.",
        })
    }
}

/// The configuration that all members share.
async fn configuration(url: &Url) -> anyhow::Result<Map<String, Value>> {
    let host = url.host_str().context("it has a host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, url.port_or_known_default().unwrap_or(PORT))).await?;
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get("/config")
        .header(header::HOST, &url[Position::BeforeHost..Position::AfterPort])
        .body(Empty::<Bytes>::new())?;
    let answer = requests.send_request(request).await?;
    ensure!(answer.status() == StatusCode::OK, "the status is {}", answer.status());
    let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    let body = body.map_err(|error| anyhow!(error))?.to_bytes();
    serde_json::from_slice(&body).context("the answer is no configuration")
}

/// As Patroni reads it. A quorum is a synchronous mode, too.
fn is_on(setting: &Value) -> bool {
    match setting {
        Value::Bool(is_on) => *is_on,
        Value::Number(number) => number.as_i64() == Some(1),
        Value::String(text) => {
            ["on", "true", "yes", "1", "quorum"].contains(&text.to_lowercase().as_str())
        }
        _ => false,
    }
}
