//! Redis: which settings could lose a fence.

use ::redis::{RedisResult, aio::MultiplexedConnection};
use anyhow::Context;

use super::{check::Check, report::Report};

pub(super) async fn examine(url: &str) -> anyhow::Result<Report> {
    let connected = testbed::redis::connect(url).await;
    let mut redis = connected.context("can't connect to Redis")?;
    let info: String = ::redis::cmd("INFO").query_async(&mut redis).await?;
    let field = |name: &str| {
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.find_map(|(field, value)| (field == name).then_some(value)).unwrap_or_default()
    };
    let fsync = setting(&mut redis, "appendfsync").await;
    let rewrite = setting(&mut redis, "no-appendfsync-on-rewrite").await;
    let (role, appends, replicas) =
        (field("role"), field("aof_enabled"), field("connected_slaves"));
    let checks = vec![
        Check::new(
            "primary",
            role == "master",
            format!("its role is {role}"),
            "A replica takes no claim, and may lack the latest fences: connect to the primary.",
        ),
        Check::new(
            "appendonly",
            appends == "1",
            if appends == "1" { "yes" } else { "no" },
            "Otherwise a crash loses all fences since the last snapshot.",
        ),
        must_be("appendfsync", fsync, "always", "Otherwise a power loss loses the latest fences."),
        must_be(
            "no-appendfsync-on-rewrite",
            rewrite,
            "no",
            "Otherwise a power loss while the file is rewritten loses fences.",
        ),
        Check::new(
            "maxmemory-policy",
            field("maxmemory_policy") == "noeviction",
            field("maxmemory_policy"),
            "Otherwise a full memory evicts fences.",
        ),
        Check::new(
            "replicas",
            matches!(replicas, "0"),
            format!("{replicas} connected"),
            "A replica receives a fence after its answer. If it is promoted, older tokens may be accepted \
             again, and min-replicas-to-write does not prevent that.",
        ),
        Check::unseen(
            "Whether the disk keeps what was synced; replicas that are not connected now; what may be \
             promoted; other clients, which may delete any key.",
        ),
    ];
    Ok(Report::new(format!("Redis {}", field("redis_version")), checks))
}

/// Reads a setting. Hosting services may forbid that.
async fn setting(redis: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let mut command = ::redis::cmd("CONFIG");
    let answer: RedisResult<Vec<String>> = command.arg("GET").arg(name).query_async(redis).await;
    answer.ok()?.into_iter().nth(1)
}

fn must_be(name: &str, found: Option<String>, safe: &str, why: &str) -> Check {
    let ok = found.as_ref().map(|found| found == safe);
    Check::new(name, ok, found.unwrap_or_else(|| "not visible to this user".to_owned()), why)
}
