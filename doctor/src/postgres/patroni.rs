//! The settings of a Patroni, at its REST address. SQL does not show them.

use std::{str::FromStr, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use reqwest::{StatusCode, Url, redirect::Policy};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use serde_json::{Map, Value};

use crate::{
    check::{Check, Verdict},
    report::Report,
};

const NAME: &str = "patroni";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The REST address of a Patroni, such as `http://db1:8008`.
#[derive(Clone, Debug)]
pub struct PatroniUrl(Url);

impl FromStr for PatroniUrl {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let url = Url::parse(text).context("it is no URL")?;
        ensure!(url.scheme() == "http" && url.has_host(), "it must be like http://HOST:8008");
        Ok(Self(url))
    }
}

/// What a Patroni does.
#[derive(Debug)]
struct Settings {
    /// Commits wait for a standby, and no other one is promoted.
    synchronous_mode: bool,
    /// They wait also if no standby is left.
    strict: bool,
}

/// Asks a Patroni, and replaces the check that only sees its session. Beside synchronous standbys, the others don't
/// matter if Patroni never promotes them.
pub async fn ask_patroni(report: &mut Report, url: &PatroniUrl) {
    apply(&mut report.checks, settings(url).await);
}

async fn settings(url: &PatroniUrl) -> anyhow::Result<Settings> {
    let configuration = configuration(url).await?;
    let is_on = |name| configuration.get(name).is_some_and(is_on);
    Ok(Settings {
        synchronous_mode: is_on("synchronous_mode"),
        strict: is_on("synchronous_mode_strict"),
    })
}

fn apply(checks: &mut Vec<Check>, patroni: anyhow::Result<Settings>) {
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
        Check::ok(NAME, found).unless(
            *synchronous_mode && *strict,
            Verdict::UnfitForFence,
            "without synchronous_mode, Patroni may promote a standby that lacks the last commits; without \
             synchronous_mode_strict, it lets them wait for no standby once none is left, also those that wait already",
            "set both, or start each storage server with --require-sync-standby",
        )
    }
}

/// The configuration that all members share.
async fn configuration(PatroniUrl(url): &PatroniUrl) -> anyhow::Result<Map<String, Value>> {
    // The connection is not encrypted. Otherwise the client looks for the system's certificates, and fails without.
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .timeout(ANSWER_TIMEOUT)
        .no_proxy()
        .build()?;
    let answer = client.get(url.join("/config")?).send().await?;
    ensure!(answer.status() == StatusCode::OK, "the status is {}", answer.status());
    serde_json::from_slice(&answer.bytes().await?).context("the answer is no configuration")
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

    fn after(names: Verdict, patroni: anyhow::Result<Settings>) -> [Verdict; 2] {
        let check = |name, verdict| Check::ok(name, "").unless(false, verdict, "", "");
        let mut checks = vec![
            check("synchronous_standby_names", names),
            check("standbys", Verdict::UnfitForFence),
            check(NAME, Verdict::Unseen),
        ];
        apply(&mut checks, patroni);
        [checks[1].verdict, checks[2].verdict]
    }

    #[test]
    fn patroni_that_promotes_only_synchronous_standbys_makes_the_others_harmless() {
        let (ok, unfit) = (Verdict::Ok, Verdict::UnfitForFence);
        let mode = |synchronous_mode, strict| Ok(Settings { synchronous_mode, strict });
        assert_eq!(after(ok, mode(true, true)), [ok, ok]);
        assert_eq!(after(ok, mode(true, false)), [ok, unfit]);
        assert_eq!(after(ok, mode(false, true)), [unfit, unfit]);
        assert_eq!(after(ok, Err(anyhow::anyhow!("gone"))), [unfit, Verdict::Unseen]);
        assert_eq!(after(unfit, mode(true, true)), [unfit, ok]);
    }
}
