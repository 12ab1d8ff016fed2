//! Locks in etcd.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use lock_client::backend::Backend;
use serde_json::json;

use super::service::{ANSWER_TIMEOUT, About, Durable, Service};
use crate::bench::{
    etcd::Gateway,
    peer::TTL,
    subject::{Subject, Times},
    work::Work,
};

/// The key of the raw transactions, `least`, in base64.
const KEY: &str = "bGVhc3Q=";

#[async_trait]
impl Service for Gateway {
    fn url(&self) -> String {
        self.etcd.url()
    }

    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>> {
        let etcd = lock_client::etcd::Etcd::open(&self.etcd.url())?;
        Ok(Arc::new(etcd.answer_within(ANSWER_TIMEOUT)))
    }

    async fn round_trip(&self) -> anyhow::Result<()> {
        self.call("kv/range", &json!({ "key": KEY })).await.map(|_| ())
    }

    async fn work(&self) -> anyhow::Result<Option<Work>> {
        let metrics = self.http.get(self.endpoint("metrics")).send().await?.error_for_status()?;
        let mut commands = 0.0;
        for line in metrics.text().await?.lines() {
            // Holders read a key.
            if line.starts_with("grpc_server_started_total{")
                && !line.contains(r#"grpc_method="Range""#)
            {
                let count = line.rsplit(' ').next().context("a metric has no value")?;
                commands += count.parse::<f64>()?;
            }
        }
        Ok(Some(Work::of_commands(commands as u64)))
    }
}

impl Durable for Gateway {
    fn about(&self) -> About {
        About {
            name: "etcd",
            title: "etcd of one member, by its JSON gateway over TCP",
            command: "requests that etcd received, other than reads of a key",
            goal_of_least: 1.2,
        }
    }

    fn beside(&self, acquires: usize) -> Vec<Subject<'_, Times>> {
        vec![
            Subject::timed("two transactions: put, delete", acquires, move || async move {
                let put = json!({ "request_put": { "key": KEY } });
                let revision = self.change_if(KEY, &json!(0), put).await?;
                let delete = json!({ "request_delete_range": { "key": KEY } });
                self.change_if(KEY, &revision, delete).await?;
                Ok(())
            }),
            Subject::timed("a linearizable read", acquires, move || self.round_trip()),
            Subject::timed("grant and revoke a lease", acquires, move || async move {
                let lease = self.call("lease/grant", &json!({ "TTL": TTL.as_secs() })).await?;
                self.call("lease/revoke", &json!({ "ID": lease["ID"] })).await?;
                Ok(())
            }),
            Subject::timed("etcdctl lock, a process", acquires.div_ceil(25), move || async move {
                self.etcd.etcdctl(&["lock", "etcdctl", "true"]).await?;
                Ok(())
            }),
        ]
    }
}
