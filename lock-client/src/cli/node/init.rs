//! `lock-client node init`.

use clap::Args;

use crate::{
    Ttl,
    cli::{Failure, LockService, ttl},
};

#[derive(Args, Debug)]
pub(in crate::cli) struct Init {
    #[command(flatten)]
    nodes: LockService,

    /// The longest ttl that is granted; a node that has lost its counters is let in after so long
    #[arg(long, value_parser = ttl, value_name = "DURATION", default_value = "5m")]
    max_ttl: Ttl,
}

impl Init {
    pub(in crate::cli) async fn run(self) -> Result<(), Failure> {
        let cluster = fence::Holder::random();
        for url in &self.nodes.redis {
            let client =
                redis::Client::open(url.as_str()).map_err(|e| Failure::Usage(e.to_string()))?;
            let mut connection = client
                .get_multiplexed_async_connection()
                .await
                .map_err(|e| Failure::Unavailable(e.to_string()))?;
            let run_id = crate::backend::redlock::membership::run_id(&mut connection)
                .await
                .map_err(|e| Failure::Unavailable(e.to_string()))?;
            let durable = crate::backend::redlock::membership::is_durable(&mut connection)
                .await
                .map_err(|e| Failure::Unavailable(e.to_string()))?;
            let _: () = redis::cmd("HSET")
                .arg("fenced:node")
                .arg(&[
                    ("cluster", cluster.as_str()),
                    ("nodes", &self.nodes.redis.len().to_string()),
                    ("max_ttl_ms", &self.max_ttl.as_millis().to_string()),
                    ("run_id", &run_id),
                    ("durable", if durable { "1" } else { "0" }),
                ])
                .query_async(&mut connection)
                .await
                .map_err(|e| Failure::Unavailable(e.to_string()))?;
        }
        Ok(())
    }
}
