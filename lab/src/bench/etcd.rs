//! etcd's JSON gateway, which our locks use too, without our client.

use std::sync::Arc;

use serde_json::{Value, json};
use testbed::Etcd;

use crate::http_client::http_client;

/// A client of a private etcd.
pub(super) struct Gateway {
    pub(super) etcd: Arc<Etcd>,
    pub(super) http: reqwest::Client,
}

impl Gateway {
    pub(super) async fn start() -> anyhow::Result<Self> {
        Ok(Self { etcd: Arc::new(Etcd::start().await?), http: http_client() })
    }

    /// A client of the same etcd with connections of its own.
    pub(super) fn another_client(&self) -> Self {
        Self { etcd: self.etcd.clone(), http: http_client() }
    }

    pub(super) fn endpoint(&self, path: &str) -> String {
        format!("http://{}/{path}", self.etcd.address(0))
    }

    pub(super) async fn call(&self, method: &str, request: &Value) -> anyhow::Result<Value> {
        let url = self.endpoint(&format!("v3/{method}"));
        let answer = self.http.post(url).body(request.to_string()).send().await?;
        Ok(serde_json::from_slice(&answer.error_for_status()?.bytes().await?)?)
    }

    /// Carries out an operation if the key, in base64, was last changed by this revision; 0 if there must
    /// be none. Returns the revision of the change.
    pub(super) async fn change_if(
        &self,
        key: &str,
        revision: &Value,
        operation: Value,
    ) -> anyhow::Result<Value> {
        let compare = json!([{ "target": "MOD", "key": key, "mod_revision": revision }]);
        let transaction = json!({ "compare": compare, "success": [operation] });
        let mut answer = self.call("kv/txn", &transaction).await?;
        anyhow::ensure!(answer["succeeded"] == true, "etcd carried out no change: {answer}");
        Ok(answer["header"]["revision"].take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the puts of the bench would be unconditional, and faster.
    #[tokio::test]
    async fn change_of_a_key_that_changed_meanwhile_is_rejected() {
        let gateway = Gateway::start().await.unwrap();
        let put = || json!({ "request_put": { "key": "a2V5", "value": "aGVsbG8=" } });
        let created = gateway.change_if("a2V5", &json!(0), put()).await.unwrap();
        let changed = gateway.change_if("a2V5", &created, put()).await.unwrap();
        assert_ne!(created, changed);
        let rejected = gateway.change_if("a2V5", &created, put()).await;
        assert!(rejected.is_err(), "{rejected:?}");
    }
}
