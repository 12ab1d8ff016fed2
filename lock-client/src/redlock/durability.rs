//! Whether a node has every write on disk before it answers, so that a restart loses nothing.
//!
//! A new process reports its present settings, but not the data that it started from. So the
//! setting `appendfsync always` is not enough. There are two more conditions:
//! - The append-only file was written since the process started. If it was switched on later, the
//!   process has loaded a snapshot, which is older than the last answers.
//! - The process is not a promoted replica: it may have missed writes that were answered.
//!
//! Some things no process can report: that somebody put an older file in place, or copied the file
//! to another machine; that the settings were different for a while; that it used to be a replica.
//! So at each connection, the client of a node that keeps its vote checks whether the next process
//! may have less. If so, the node does not keep its vote any more.

use std::collections::HashMap;

use redis::{RedisResult, aio::ConnectionLike};

/// Which of the writes that a node has answered are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Persistence {
    /// All of them (`appendonly yes`, `appendfsync always`).
    Always,
    /// All of them, except while the file is being rewritten (`no-appendfsync-on-rewrite yes`).
    NotOnRewrite,
    /// All but those of the last one or two seconds.
    EverySecond,
    /// All but those of the last half minute, or longer: the operating system decides.
    Whenever,
    /// Those before the last snapshot.
    Snapshots,
    /// None.
    Nothing,
    /// The node does not report it.
    Unseen,
}

/// The settings and the state of a node that decide whether a restart loses writes.
#[derive(Clone, Debug)]
pub(super) struct Durability {
    persistence: Persistence,
    info: HashMap<String, String>,
}

impl Durability {
    /// Reads them from a node.
    pub(super) async fn read(connection: &mut impl ConnectionLike) -> RedisResult<Self> {
        let persistence = Persistence::read(connection).await?;
        let info: String = redis::cmd("INFO").query_async(connection).await?;
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        let info = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Self { persistence, info })
    }

    /// Whether the node is a single Redis: not a replica, and not part of a Cluster.
    pub(super) fn is_single(&self) -> bool {
        self.field_is("redis_mode", "standalone") && self.field_is("role", "master")
    }

    pub(super) fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Whether the node reports that its next process may lack writes that this one answers.
    pub(super) fn may_lose(&self) -> bool {
        !matches!(self.persistence, Persistence::Always | Persistence::Unseen)
            || self.field_is("role", "slave")
            || self.info.get("connected_slaves").is_some_and(|replicas| replicas != "0")
    }

    /// Whether the next process will have every write that this one answers, if no setting changes.
    pub(super) fn keeps_all(&self) -> bool {
        self.persistence == Persistence::Always
            && self.file_is_complete()
            && self.field_is("aof_last_bgrewrite_status", "ok")
            && self.info.contains_key("aof_rewrites")
            && self.field_is("role", "master")
            && self.field_is("connected_slaves", "0")
    }

    /// Whether this process has every write that the one before it answered, provided that the one
    /// before kept them all. `None` if the node does not report it.
    pub(super) fn has_kept_all(&self) -> Option<bool> {
        if self.persistence == Persistence::Unseen {
            return None;
        }
        let never_promoted =
            self.info.get("master_replid2").is_some_and(|id| id.bytes().all(|byte| byte == b'0'));
        // The first field counts from CONFIG RESETSTAT on, the second from the start.
        let appended_from_the_start = self.file_is_complete()
            && self.field_is("aof_rewrites", "0")
            && self.field_is("aof_last_rewrite_time_sec", "-1");
        Some(
            self.persistence == Persistence::Always
                && appended_from_the_start
                && self.field_is("role", "master")
                && never_promoted,
        )
    }

    /// A file that was just switched on is incomplete until it has been rewritten.
    fn file_is_complete(&self) -> bool {
        self.field_is("aof_rewrite_in_progress", "0") && self.field_is("aof_rewrite_scheduled", "0")
    }

    fn field_is(&self, field: &str, value: &str) -> bool {
        self.info.get(field).is_some_and(|actual| actual == value)
    }
}

impl Persistence {
    /// Reads the settings of a node. A setting that it refuses to report is
    /// [`Unseen`](Self::Unseen).
    async fn read(connection: &mut impl ConnectionLike) -> RedisResult<Self> {
        let mut setting = async |name: &str| -> RedisResult<Option<String>> {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            match command.query_async::<HashMap<String, String>>(connection).await {
                Ok(mut settings) => Ok(settings.remove(name)),
                Err(error) if error.is_io_error() || error.is_unrecoverable_error() => Err(error),
                Err(_) => Ok(None),
            }
        };
        if setting("appendonly").await?.as_deref() == Some("yes") {
            return Ok(match setting("appendfsync").await?.as_deref() {
                Some("always") => match setting("no-appendfsync-on-rewrite").await?.as_deref() {
                    Some("no") => Self::Always,
                    Some(_) => Self::NotOnRewrite,
                    None => Self::Unseen,
                },
                Some("everysec") => Self::EverySecond,
                Some(_) => Self::Whenever,
                None => Self::Unseen,
            });
        }
        Ok(match setting("save").await?.as_deref() {
            Some("") => Self::Nothing,
            Some(_) => Self::Snapshots,
            None => Self::Unseen,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = "role:master connected_slaves:0 aof_rewrite_in_progress:0 \
                        aof_rewrite_scheduled:0 aof_rewrites:0 aof_last_bgrewrite_status:ok \
                        aof_last_rewrite_time_sec:-1 master_replid2:0000000000";

    fn durability(persistence: Persistence, info: &str) -> Durability {
        let fields = info.split(' ').filter_map(|field| field.split_once(':'));
        let info = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Durability { persistence, info }
    }

    #[test]
    fn process_that_started_with_less_has_not_kept_all() {
        let kept = |info: &str| durability(Persistence::Always, info).has_kept_all();
        assert_eq!(kept(KEPT), Some(true));
        for (reported, instead) in [
            ("rewrites:0", "rewrites:1"),
            ("time_sec:-1", "time_sec:0"),
            ("in_progress:0", "in_progress:1"),
            ("scheduled:0", "scheduled:1"),
            ("role:master", "role:slave"),
            ("replid2:0000000000", "replid2:e035d56b1e"),
            ("aof_rewrites:0", ""),
        ] {
            assert_eq!(kept(&KEPT.replace(reported, instead)), Some(false), "{instead}");
        }
        assert_eq!(durability(Persistence::EverySecond, KEPT).has_kept_all(), Some(false));
        assert_eq!(durability(Persistence::Unseen, KEPT).has_kept_all(), None);
    }

    #[test]
    fn process_that_reports_weaker_settings_may_lose_writes() {
        let loses = |persistence, info: &str| durability(persistence, info).may_lose();
        assert!(!loses(Persistence::Always, KEPT));
        assert!(!loses(Persistence::Always, &KEPT.replace("in_progress:0", "in_progress:1")));
        assert!(!loses(Persistence::Unseen, ""), "it reports nothing");
        assert!(loses(Persistence::EverySecond, KEPT));
        assert!(loses(Persistence::Always, &KEPT.replace("slaves:0", "slaves:1")));
        assert!(loses(Persistence::Always, &KEPT.replace("role:master", "role:slave")));
    }

    #[test]
    fn process_whose_successor_may_have_less_does_not_keep_all() {
        let keeps = |info: &str| durability(Persistence::Always, info).keeps_all();
        assert!(keeps(KEPT) && keeps(&KEPT.replace("rewrites:0", "rewrites:1")));
        for (reported, instead) in [
            ("in_progress:0", "in_progress:1"),
            ("scheduled:0", "scheduled:1"),
            ("status:ok", "status:err"),
            ("slaves:0", "slaves:1"),
        ] {
            assert!(!keeps(&KEPT.replace(reported, instead)), "{instead}");
        }
        assert!(!durability(Persistence::NotOnRewrite, KEPT).keeps_all());
    }
}
