//! Whether a node has every write on disk before it answers, and so loses nothing when it restarts.
//!
//! A process that comes up tells its settings of now, not what it came up from. So more is asked for
//! than `appendfsync always`:
//! - the append-only file was written from the start of the process. One whose file was turned on later
//!   has loaded a snapshot, which is older than what was answered.
//! - the process is no replica that was promoted: it may not have heard of all that was answered.
//!
//! What no process can tell: that somebody has put an older file in its place, has copied it to another
//! machine, or has had the settings otherwise for a while, and then as before again; nor that it was a
//! replica in another life. So each time that a node which keeps its vote is connected to, it is seen
//! whether the next process may have less; if so, it doesn't keep its vote any more.

use std::collections::HashMap;

use redis::{RedisResult, aio::ConnectionLike};

/// What is on disk of the writes that a node has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Persistence {
    /// All of them (`appendonly yes`, `appendfsync always`).
    Always,
    /// All of them, unless the file is being rewritten (`no-appendfsync-on-rewrite yes`).
    NotOnRewrite,
    /// All but the last second's or two.
    EverySecond,
    /// All but the last half a minute's or more.
    Whenever,
    /// Those before the last snapshot.
    Snapshots,
    /// None.
    Nothing,
    /// That isn't told.
    Unseen,
}

/// What a node tells of its disk, and of what it was before.
#[derive(Clone, Debug)]
pub(super) struct Durability {
    persistence: Persistence,
    info: HashMap<String, String>,
}

impl Durability {
    /// Asks a node.
    pub(super) async fn of(connection: &mut impl ConnectionLike) -> RedisResult<Self> {
        let persistence = Persistence::of(connection).await?;
        let info: String = redis::cmd("INFO").query_async(connection).await?;
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        let info = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Self { persistence, info })
    }

    /// Whether it is one Redis by itself: no replica, and no part of a Cluster.

    pub(super) fn is_by_itself(&self) -> bool {
        self.tells("redis_mode", "standalone") && self.tells("role", "master")
    }

    pub(super) fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Whether it is seen that the next process may come up with less than this one answers.
    pub(super) fn may_lose(&self) -> bool {
        !matches!(self.persistence, Persistence::Always | Persistence::Unseen)
            || self.tells("role", "slave")
            || self.info.get("connected_slaves").is_some_and(|replicas| replicas != "0")
    }

    /// Whether the next process comes up with all that this one answers, if nothing is changed.

    pub(super) fn keeps_all(&self) -> bool {
        self.persistence == Persistence::Always
            && self.file_is_whole()
            && self.tells("aof_last_bgrewrite_status", "ok")
            && self.info.contains_key("aof_rewrites")
            && self.tells("role", "master")
            && self.tells("connected_slaves", "0")
    }

    /// Whether this process has come up with all that the one before it has answered, if that one kept
    /// it all; `None` if it isn't told.
    pub(super) fn has_kept_all(&self) -> Option<bool> {
        if self.persistence == Persistence::Unseen {
            return None;
        }
        let never_promoted =
            self.info.get("master_replid2").is_some_and(|id| id.bytes().all(|byte| byte == b'0'));
        // The one counts from CONFIG RESETSTAT, the other from the start.
        let appended_from_the_start = self.file_is_whole()
            && self.tells("aof_rewrites", "0")
            && self.tells("aof_last_rewrite_time_sec", "-1");
        Some(
            self.persistence == Persistence::Always
                && appended_from_the_start
                && self.tells("role", "master")
                && never_promoted,
        )
    }

    /// A file that was just turned on is not whole until it was written anew.
    fn file_is_whole(&self) -> bool {
        self.tells("aof_rewrite_in_progress", "0") && self.tells("aof_rewrite_scheduled", "0")
    }

    fn tells(&self, field: &str, value: &str) -> bool {
        self.info.get(field).is_some_and(|told| told == value)
    }
}

impl Persistence {
    /// Asks a node. What it refuses to tell is unseen.
    async fn of(connection: &mut impl ConnectionLike) -> RedisResult<Self> {
        let mut setting = async |name: &str| -> RedisResult<Option<String>> {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            match command.query_async::<HashMap<String, String>>(connection).await {
                Ok(mut told) => Ok(told.remove(name)),
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

    fn told(persistence: Persistence, info: &str) -> Durability {
        let fields = info.split(' ').filter_map(|field| field.split_once(':'));
        let info = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Durability { persistence, info }
    }

    #[test]
    fn process_that_came_up_with_less_has_not_kept_all() {
        let kept = |info: &str| told(Persistence::Always, info).has_kept_all();
        assert_eq!(kept(KEPT), Some(true));
        for (told, instead) in [
            ("rewrites:0", "rewrites:1"),
            ("time_sec:-1", "time_sec:0"),
            ("in_progress:0", "in_progress:1"),
            ("scheduled:0", "scheduled:1"),
            ("role:master", "role:slave"),
            ("replid2:0000000000", "replid2:e035d56b1e"),
            ("aof_rewrites:0", ""),
        ] {
            assert_eq!(kept(&KEPT.replace(told, instead)), Some(false), "{instead}");
        }
        assert_eq!(told(Persistence::EverySecond, KEPT).has_kept_all(), Some(false));
        assert_eq!(told(Persistence::Unseen, KEPT).has_kept_all(), None);
    }

    #[test]
    fn process_that_is_seen_to_keep_less_may_lose_something() {
        let loses = |persistence, info: &str| told(persistence, info).may_lose();
        assert!(!loses(Persistence::Always, KEPT));
        assert!(!loses(Persistence::Always, &KEPT.replace("in_progress:0", "in_progress:1")));
        assert!(!loses(Persistence::Unseen, ""), "nothing is seen");
        assert!(loses(Persistence::EverySecond, KEPT));
        assert!(loses(Persistence::Always, &KEPT.replace("slaves:0", "slaves:1")));
        assert!(loses(Persistence::Always, &KEPT.replace("role:master", "role:slave")));
    }

    #[test]
    fn process_whose_successor_may_have_less_does_not_keep_all() {
        let keeps = |info: &str| told(Persistence::Always, info).keeps_all();
        assert!(keeps(KEPT) && keeps(&KEPT.replace("rewrites:0", "rewrites:1")));
        for (told, instead) in [
            ("in_progress:0", "in_progress:1"),
            ("scheduled:0", "scheduled:1"),
            ("status:ok", "status:err"),
            ("slaves:0", "slaves:1"),
        ] {
            assert!(!keeps(&KEPT.replace(told, instead)), "{instead}");
        }
        assert!(!told(Persistence::NotOnRewrite, KEPT).keeps_all());
    }
}
