//! Locks in etcd.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use lock_client::backend::Backend;
use serde_json::{Value, json};

use super::{
    super::hold::RoundTrip,
    server::{ANSWER_TIMEOUT, Other, Server},
};
use crate::{bench::peer::TTL, http_client::http_client};

/// The key of the raw transactions, `least`, in base64.
const KEY: &str = "bGVhc3Q=";

/// An etcd, and a raw connection to its JSON gateway, which our locks use too.
pub(in super::super) struct Etcd {
    etcd: testbed::Etcd,
    gateway: reqwest::Client,
}

impl Etcd {
    pub(in super::super) async fn start() -> anyhow::Result<Self> {
        Ok(Self { etcd: testbed::Etcd::start().await?, gateway: http_client() })
    }

    async fn call(&self, method: &str, request: &Value) -> anyhow::Result<Value> {
        let url = format!("http://{}/v3/{method}", self.etcd.address(0));
        let answer = self.gateway.post(url).body(request.to_string()).send().await?;
        Ok(serde_json::from_slice(&answer.error_for_status()?.bytes().await?)?)
    }

    /// Puts a key if there is none, and deletes it if it is still the same.
    async fn put_and_delete(&self) -> anyhow::Result<()> {
        let put = json!({
            "compare": [{ "target": "CREATE", "key": KEY, "create_revision": "0" }],
            "success": [{ "request_put": { "key": KEY } }],
        });
        let put = self.call("kv/txn", &put).await?;
        let delete = json!({
            "compare": [{
                "target": "CREATE", "key": KEY, "create_revision": put["header"]["revision"],
            }],
            "success": [{ "request_delete_range": { "key": KEY } }],
        });
        let delete = self.call("kv/txn", &delete).await?;
        ensure!(put["succeeded"] == true && delete["succeeded"] == true, "{put} {delete}");
        Ok(())
    }

    async fn grant_and_revoke(&self) -> anyhow::Result<()> {
        let lease = self.call("lease/grant", &json!({ "TTL": TTL.as_secs() })).await?;
        self.call("lease/revoke", &json!({ "ID": lease["ID"] })).await?;
        Ok(())
    }
}

#[async_trait]
impl RoundTrip for Etcd {
    async fn round_trip(&self) -> anyhow::Result<()> {
        self.call("kv/range", &json!({ "key": KEY })).await.map(|_| ())
    }
}

#[async_trait]
impl Server for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn title(&self) -> &'static str {
        "etcd of one member, by its JSON gateway over TCP"
    }

    fn url(&self) -> String {
        self.etcd.url()
    }

    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>> {
        Ok(Arc::new(lock_client::etcd::Etcd::open(&self.url())?.answer_within(ANSWER_TIMEOUT)))
    }

    fn least_subject(&self) -> &'static str {
        "two transactions: put, delete"
    }

    async fn least(&self, count: usize) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            self.put_and_delete().await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    fn goal_of_least(&self) -> f64 {
        1.2
    }

    fn round_trip_subject(&self) -> &'static str {
        "a linearizable read"
    }

    fn others(&self) -> &'static [Other] {
        &[
            Other { subject: "grant and revoke a lease", once_in: 1 },
            Other { subject: "etcdctl lock, a process", once_in: 25 },
        ]
    }

    async fn measure_other(&self, number: usize, count: usize) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            match number {
                0 => self.grant_and_revoke().await?,
                _ => drop(self.etcd.etcdctl(&["lock", "etcdctl", "true"]).await?),
            }
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    fn command(&self) -> &'static str {
        "requests that etcd received, other than reads of a key"
    }

    async fn commands(&self) -> anyhow::Result<Option<u64>> {
        let url = format!("http://{}/metrics", self.etcd.address(0));
        let metrics = self.gateway.get(url).send().await?.error_for_status()?.text().await?;
        let mut commands = 0.0;
        for line in metrics.lines().filter(|line| line.starts_with("grpc_server_started_total{")) {
            // The holders' own.
            if !line.contains(r#"grpc_method="Range""#) {
                let count = line.rsplit(' ').next().context("a metric has no value")?;
                commands += count.parse::<f64>()?;
            }
        }
        Ok(Some(commands as u64))
    }
}
