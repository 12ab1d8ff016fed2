//! Which of a node's writes are on disk, as its settings promise.
//!
//! This decides no vote. A new process reports its present settings, but not those under which its
//! file was written. It can't report either that somebody put an older file in place. So no setting
//! proves that a restart has lost nothing, and every restarted node is admitted again.

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

impl Persistence {
    /// Reads the settings of a node. A setting that it does not report is
    /// [`Unseen`](Self::Unseen).
    pub(super) async fn read(connection: &mut impl ConnectionLike) -> RedisResult<Self> {
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
