//! What a sandbox is started with.

use std::time::Duration;

use serde::Deserialize;

use crate::record::{Checks, Danger, World};

/// What a sandbox is started with.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Whether the storage checks tokens.
    pub(crate) fence: Switch,
    /// Whether a read claims.
    pub(crate) claims: Switch,
    pub(crate) locks: Locks,
    pub(crate) store: StoreKind,
    /// How long a lease lasts. Clients don't renew it.
    #[serde(rename = "ttl_ms")]
    pub(crate) ttl: Ttl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Switch {
    On,
    Off,
}

/// A lock service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Locks {
    Redis,
    Etcd,
    #[serde(rename = "zookeeper")]
    ZooKeeper,
    /// A table.
    Postgres,
    Redlock,
}

/// What clients read and write: a storage server on one of these databases, or a table of PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StoreKind {
    Sqlite,
    Postgres,
    ObjectStorage,
    PostgresTable,
}

impl StoreKind {
    /// Its name in the settings and in the record.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::ObjectStorage => "object-storage",
            Self::PostgresTable => "postgres-table",
        }
    }
}

/// The ttl of a lease: long enough for a hand, and short enough to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u64")]
pub(crate) struct Ttl(Duration);

impl TryFrom<u64> for Ttl {
    type Error = &'static str;

    fn try_from(millis: u64) -> Result<Self, Self::Error> {
        match millis {
            1_000..=120_000 => Ok(Self(Duration::from_millis(millis))),
            _ => Err("a lease lasts from 1 000 to 120 000 milliseconds"),
        }
    }
}

/// With the fence on or off, and claims on or off.
pub(super) static WORLDS: [World; 4] = [
    world(
        "fence-off-claims-off",
        "FENCE OFF, CLAIMS OFF: the storage accepts every write, and reads claim nothing",
        Checks::Nothing,
    ),
    world(
        "fence-off-claims-on",
        "FENCE OFF, CLAIMS ON: clients claim before they read, but the storage accepts every write",
        Checks::Nothing,
    ),
    world(
        "fence-on-claims-off",
        "FENCE ON, CLAIMS OFF: the storage checks the token of each write, and reads claim nothing",
        Checks::Tokens,
    ),
    world(
        "fence-on-claims-on",
        "FENCE ON, CLAIMS ON: the storage checks each token, and clients claim before they read",
        Checks::Tokens,
    ),
];

const fn world(name: &'static str, title: &'static str, checks: Checks) -> World {
    let danger = match checks {
        Checks::Nothing => Danger::Strikes,
        Checks::Tokens => Danger::Averted,
    };
    World { name, title, danger, checks, end: &[] }
}

impl Settings {
    /// The world that these settings make.
    pub(super) fn world(self) -> &'static World {
        let number = match (self.fence, self.claims) {
            (Switch::Off, Switch::Off) => 0,
            // Without a fence, a table has nothing to claim.
            (Switch::Off, Switch::On) if self.store == StoreKind::PostgresTable => 0,
            (Switch::Off, Switch::On) => 1,
            (Switch::On, Switch::Off) => 2,
            (Switch::On, Switch::On) => 3,
        };
        &WORLDS[number]
    }

    pub(super) fn ttl(self) -> Duration {
        self.ttl.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn settings_choose_the_world_and_a_lease_has_its_limits() {
        let settings = |fence: &str, claims: &str, ttl_ms: u64| {
            from_value::<Settings>(json!({
                "fence": fence,
                "claims": claims,
                "locks": "redis",
                "store": "sqlite",
                "ttl_ms": ttl_ms,
            }))
        };
        for fence in ["on", "off"] {
            for claims in ["on", "off"] {
                let world = settings(fence, claims, 5_000).unwrap().world();
                assert_eq!(world.name, format!("fence-{fence}-claims-{claims}"));
                assert_eq!(world.checks == Checks::Tokens, fence == "on");
            }
        }
        assert!(settings("maybe", "on", 5_000).is_err());
        assert!(settings("on", "on", 999).is_err());
        assert!(settings("on", "on", 120_001).is_err());
    }
}
