//! The scripts, each of which is one step for Redis.

use std::sync::OnceLock;

use redis::{Cmd, ToRedisArgs};

/// A script that Redis may or may not know already.
pub(in crate::backend) struct Script {
    code: &'static str,
    hash: OnceLock<String>,
}

/// Joins the files of a script.
macro_rules! script {
    ($($file:literal),+) => {
        $crate::backend::redis::script::Script::of(concat!($(include_str!($file)),+))
    };
}
pub(in crate::backend) use script;

pub(super) static ACQUIRE: Script = script!("counter.lua", "queue.lua", "acquire.lua");
pub(super) static RENEW: Script = script!("counter.lua", "renew.lua");
pub(super) static REISSUE: Script = script!("counter.lua", "reissue.lua");
pub(super) static RELEASE: Script = script!("queue.lua", "release.lua");
pub(in crate::backend) static STATUS: Script = script!("status.lua");

/// A script with its keys and arguments.
pub(in crate::backend) struct Call {
    script: &'static Script,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Script {
    pub(in crate::backend) const fn of(code: &'static str) -> Self {
        Self { code, hash: OnceLock::new() }
    }

    pub(in crate::backend) fn with(&'static self, keys: impl Into<Vec<String>>) -> Call {
        Call { script: self, keys: keys.into(), arguments: Vec::new() }
    }
}

impl Call {
    pub(in crate::backend) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.arguments.extend(argument.to_redis_args());
        self
    }

    /// The call by the script's hash alone.
    pub(super) fn by_hash(&self) -> Cmd {
        let Script { code, hash } = self.script;
        self.command("EVALSHA", hash.get_or_init(|| redis::Script::new(code).get_hash().to_owned()))
    }

    /// The call with the whole script, which Redis knows from then on.
    pub(in crate::backend) fn in_full(&self) -> Cmd {
        self.command("EVAL", self.script.code)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }
}
