//! A try of the scripts on one node: with the others, a majority would do without it.

use fence::{Holder, ResourceName};
use redis::RedisError;

use super::Operator;
use crate::Ttl;
use crate::backend::Ownership;
use crate::redis::keys::Keys;
use crate::redis::line::Line;
use crate::redis::script::Call;
use crate::redis::script::STATUS;
use crate::redis::transport::Transport;
use crate::redis::unix_millis;
use crate::redlock::membership::Membership;
use crate::redlock::script;

impl Operator {
    /// Takes, seals, renews, raises and releases a lock on one node that may vote.
    ///
    /// # Errors
    /// What can't be done, and why.
    pub async fn try_lock_on(
        &self,
        node: usize,
        name: &ResourceName,
        ttl: Ttl,
    ) -> Result<(), String> {
        let peer = self.places[node].connect(self.places.len()).await;
        let peer = peer.map_err(|trouble| format!("can't be heard: {trouble}"))?;
        let cluster = peer.cluster().unwrap_or_default().to_owned();
        let voter = Membership { cluster, run_id: peer.run_id };
        let (keys, holder) = (Keys::of(name), Holder::random());
        let mut line = Line::new(Transport::Node(peer.connection));
        let mut done = async |what: &str, call: Call| -> Result<redis::Value, String> {
            let answer: Result<_, RedisError> = line.run(&call).await;
            answer.map_err(|error| format!("can't {what}: {error}"))
        };
        let granted =
            done("take a lock", script::grant(&keys, &voter, &holder, ttl, unix_millis())).await?;
        let grant: i64 = redis::from_redis_value(granted)
            .map_err(|error| format!("can't take a lock: {error}"))?;
        let grant = fence::Token::try_from(grant).map_err(|error| error.to_string())?;
        let own = Ownership { holder: holder.clone(), grant };
        done("seal a token", script::seal(&keys, &voter, &own, grant, grant)).await?;
        done("renew a lease", script::renew(&keys, &voter, &own, ttl)).await?;
        done("raise a token", script::raise(&keys, &voter, &own, grant, unix_millis())).await?;
        let status = STATUS.with([keys.lock(), keys.counter(), keys.queue()]);
        done("look at a lock", status).await?;
        done("release a lock", script::release(&keys, &holder, Some(grant))).await?;
        Ok(())
    }
}
