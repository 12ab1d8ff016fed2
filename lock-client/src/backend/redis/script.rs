//! The scripts, each of which is one step for Redis.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs};

/// A script that Redis may or may not know already.
pub(super) struct Script {
    code: &'static str,
    hash: LazyLock<String>,
}

/// Joins the files of a script.
macro_rules! script {
    ($($file:literal),+) => {{
        const CODE: &str = concat!($(include_str!($file)),+);
        Script { code: CODE, hash: LazyLock::new(|| redis::Script::new(CODE).get_hash().to_owned()) }
    }};
}

pub(super) static ACQUIRE: Script = script!("counter.lua", "queue.lua", "acquire.lua");
pub(super) static RENEW: Script = script!("counter.lua", "renew.lua");
pub(super) static REISSUE: Script = script!("counter.lua", "reissue.lua");
pub(super) static RELEASE: Script = script!("queue.lua", "release.lua");
pub(super) static STATUS: Script = script!("status.lua");

/// A script with its keys and arguments.
pub(super) struct Call {
    script: &'static Script,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Script {
    pub(super) fn with(&'static self, keys: impl Into<Vec<String>>) -> Call {
        Call { script: self, keys: keys.into(), arguments: Vec::new() }
    }
}

impl Call {
    pub(super) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.arguments.extend(argument.to_redis_args());
        self
    }

    /// The call by the script's hash alone.
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// The call with the whole script, which Redis knows from then on.
    pub(super) fn in_full(&self) -> Cmd {
        self.command("EVAL", self.script.code)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }
}
