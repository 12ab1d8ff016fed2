//! The scripts. Redis runs each as one step.

use std::sync::OnceLock;

use redis::{Arg, Cmd, ToRedisArgs};

/// A script. It is sent by its hash if Redis knows it already.
pub(crate) struct Script {
    code: &'static str,
    hash: OnceLock<String>,
}

macro_rules! script {
    ($($file:literal),+) => {
        $crate::redis::script::Script::new(concat!($(include_str!($file)),+))
    };
}
pub(crate) use script;

pub(super) static ACQUIRE: Script =
    script!("acquire.lua", "counter.lua", "queue.lua", "acquire_else.lua");
pub(super) static RENEW: Script = script!("counter.lua", "renew.lua");
pub(super) static REISSUE: Script = script!("counter.lua", "reissue.lua");
pub(super) static RELEASE: Script = script!("release.lua", "queue.lua", "release_else.lua");
pub(super) static STATUS: Script = script!("status.lua");

pub(crate) struct Call {
    script: &'static Script,
    by_hash: Cmd,
}

impl Script {
    pub(crate) const fn new(code: &'static str) -> Self {
        Self { code, hash: OnceLock::new() }
    }

    pub(crate) fn with(&'static self, keys: impl Into<Vec<String>>) -> Call {
        let hash = self.hash.get_or_init(|| redis::Script::new(self.code).get_hash().to_owned());
        let keys = keys.into();
        // Enough for most calls.
        let mut by_hash = Cmd::with_capacity(16, 512);
        by_hash.arg("EVALSHA").arg(hash).arg(keys.len()).arg(keys);
        Call { script: self, by_hash }
    }
}

impl Call {
    pub(crate) fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.by_hash.arg(argument);
        self
    }

    pub(super) fn script(&self) -> &'static Script {
        self.script
    }

    pub(super) fn by_hash(&self) -> &Cmd {
        &self.by_hash
    }

    /// The call with the whole script. Redis knows the script from then on.
    pub(crate) fn in_full(&self) -> Cmd {
        let mut in_full = redis::cmd("EVAL");
        in_full.arg(self.script.code);
        for argument in self.by_hash.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                in_full.arg(argument);
            }
        }
        in_full
    }
}
