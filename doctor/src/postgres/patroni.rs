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

use crate::check::{Check, Verdict};

const NAME: &str = "patroni";
const PORT: u16 = 8008;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// More than any configuration has.
const MAX_BYTES: usize = 1 << 20;

/// The REST address of a Patroni, such as `http://db1:8008`.
#[derive(Clone, Debug)]
pub struct PatroniUrl(Url);

impl FromStr for PatroniUrl {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let url = Url::parse(text).context("it is no URL")?;
        ensure!(url.scheme() == "http" && url.has_host(), "it must be like http://HOST:{PORT}");
        Ok(Self(url))
    }
}

/// What a Patroni does.
#[derive(Debug)]
pub(super) struct Settings {
    /// Commits wait for a standby, and no other one is promoted.
    synchronous_mode: bool,
    /// They wait also if no standby is left.
    strict: bool,
}

pub(super) async fn ask(PatroniUrl(url): &PatroniUrl) -> anyhow::Result<Settings> {
    let asked = timeout(ANSWER_TIMEOUT, configuration(url)).await;
    let late = |_| Err(anyhow!("no answer within {} s", ANSWER_TIMEOUT.as_secs()));
    let configuration = asked.unwrap_or_else(late)?;
    let is_on = |name| configuration.get(name).is_some_and(is_on);
    Ok(Settings {
        synchronous_mode: is_on("synchronous_mode"),
        strict: is_on("synchronous_mode_strict"),
    })
}

/// Replaces the check that only sees Patroni's session. Beside synchronous standbys, the others don't
/// matter if Patroni never promotes them.
pub(super) fn apply(checks: &mut Vec<Check>, patroni: anyhow::Result<Settings>) {
    checks.retain(|check| check.name != NAME);
    let is_ok = |name| checks.iter().any(|it| it.name == name && it.verdict == Verdict::Ok);
    let have_names = is_ok("synchronous_standby_names");
    if let Ok(Settings { synchronous_mode: true, .. }) = patroni
        && have_names
        && let Some(standbys) = checks.iter_mut().find(|check| check.name == "standbys")
    {
        let found = format!("{}; Patroni promotes synchronous ones only", standbys.found);
        *standbys = Check::ok("standbys", found);
    }
    let unseen = |error| {
        let found = format!("it did not answer: {error:#}");
        Check::unseen(NAME, found, "give the REST address of a running member")
    };
    checks.push(patroni.map_or_else(unseen, |settings| settings.check()));
}

impl Settings {
    fn check(&self) -> Check {
        let Self { synchronous_mode, strict } = self;
        let found =
            format!("synchronous_mode: {synchronous_mode}, synchronous_mode_strict: {strict}");
        if *synchronous_mode && *strict {
            return Check::ok(NAME, found);
        }
        Check::bad(
            Verdict::UnfitForFence,
            NAME,
            found,
            "without synchronous_mode, Patroni may promote a standby that lacks the last commits; without \
             synchronous_mode_strict, it lets them wait for no standby once none is left, also those that \
             wait already",
            "set both, or start each storage server with --require-sync-standby",
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    fn standbys(names: Verdict, patroni: anyhow::Result<Settings>) -> Vec<(String, Verdict)> {
        let check = |name, verdict| match verdict {
            Verdict::Ok => Check::ok(name, ""),
            verdict => Check::bad(verdict, name, "", "", ""),
        };
        let mut checks = vec![
            check("synchronous_standby_names", names),
            check("standbys", Verdict::UnfitForFence),
            check(NAME, Verdict::Unseen),
        ];
        apply(&mut checks, patroni);
        let checks = checks.into_iter().skip(1);
        checks.map(|check| (check.name.into_owned(), check.verdict)).collect()
    }

    #[test]
    fn patroni_that_promotes_only_synchronous_standbys_makes_the_others_harmless() {
        let (ok, unfit) = (Verdict::Ok, Verdict::UnfitForFence);
        let mode = |synchronous_mode, strict| Ok(Settings { synchronous_mode, strict });
        for (names, patroni, expected) in [
            (ok, mode(true, true), [ok, ok]),
            (ok, mode(true, false), [ok, unfit]),
            (ok, mode(false, true), [unfit, unfit]),
            (ok, Err(anyhow!("gone")), [unfit, Verdict::Unseen]),
            (unfit, mode(true, true), [unfit, ok]),
        ] {
            let [standbys_verdict, patroni_verdict] = expected;
            let expected =
                [("standbys".to_owned(), standbys_verdict), (NAME.to_owned(), patroni_verdict)];
            let case = format!("{names:?} {patroni:?}");
            assert_eq!(standbys(names, patroni), expected, "{case}");
        }
    }
}
