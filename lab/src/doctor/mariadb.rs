//! MariaDB: which settings could lose a fence.

use std::collections::HashMap;

use anyhow::{Context, ensure};
use sqlx::{Connection, MySqlConnection, query_as, query_scalar};

use super::{check::Check, report::Report};

/// The names are in upper case.
const SETTINGS: &str = "
    select cast(variable_name as char), cast(variable_value as char)
    from information_schema.global_variables
    where variable_name in (
        'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'innodb_doublewrite', 'log_bin',
        'sync_binlog', 'read_only', 'version', 'wsrep_on'
    )
    union all
    select cast(variable_name as char), cast(variable_value as char)
    from information_schema.global_status
    where variable_name in ('slaves_connected', 'rpl_semi_sync_master_status')";
const ENGINE: &str = "
    select cast(engine as char) from information_schema.tables
    where table_schema = 'fence' and table_name = 'resources'";

pub(super) async fn examine(url: &str) -> anyhow::Result<Report> {
    let connected = MySqlConnection::connect(url).await;
    let mut database = connected.context("can't connect to the database")?;
    let engine = query_scalar::<_, String>(ENGINE).fetch_optional(&mut database).await?;
    let missing = "the fence is not installed in this database, or is too old, or this role does not \
                   see it; see migrations/README.md";
    let engine = engine.context(missing)?;
    let settings = query_as::<_, (String, String)>(SETTINGS).fetch_all(&mut database).await?;
    let settings = Settings(settings.into_iter().collect());
    ensure!(settings.value("version").contains("MariaDB"), "this is not a MariaDB");
    let mut checks = durability(&settings);
    checks.push(Check::new(
        "fence_table",
        engine == "InnoDB",
        engine,
        "Only InnoDB commits the fence and the data in one step.",
    ));
    checks.extend(replication(&settings));
    checks.push(Check::unseen(
        "Whether the disk keeps what was synced; replicas that are not connected now; what may be \
         promoted; a restored backup.",
    ));
    let version = settings.value("version");
    let version = version.split('-').next().unwrap_or_default();
    Ok(Report::new(format!("MariaDB {version}"), checks))
}

struct Settings(HashMap<String, String>);

impl Settings {
    /// Returns a setting, or an empty string if this server does not have it.
    fn value(&self, name: &str) -> &str {
        self.0.get(&name.to_uppercase()).map_or("", String::as_str)
    }
}

fn durability(settings: &Settings) -> Vec<Check> {
    let [flush, method, doublewrite, log, sync] = [
        "innodb_flush_log_at_trx_commit",
        "innodb_flush_method",
        "innodb_doublewrite",
        "log_bin",
        "sync_binlog",
    ]
    .map(|name| settings.value(name));
    vec![
        Check::new(
            "innodb_flush_log_at_trx_commit",
            matches!(flush, "1" | "3"),
            flush,
            "Otherwise a power loss loses up to a second of committed fences.",
        ),
        Check::new(
            "sync_binlog",
            // With 3, InnoDB syncs each commit all the same.
            log == "OFF" || sync == "1" || flush == "3",
            if log == "OFF" { "no binary log".to_owned() } else { format!("{sync}, with log_bin") },
            "With a binary log, InnoDB leaves the sync of a commit to it: only 1 loses none.",
        ),
        Check::new(
            "innodb_flush_method",
            !matches!(method, "nosync" | "littlesync"),
            if method.is_empty() { "the default" } else { method },
            "A power loss loses what was not synced.",
        ),
        Check::new(
            "innodb_doublewrite",
            doublewrite != "OFF",
            doublewrite,
            "Without it, a crash may leave torn pages, unless the file system prevents them.",
        ),
    ]
}

fn replication(settings: &Settings) -> Vec<Check> {
    let [read_only, galera, replicas, waits] =
        ["read_only", "wsrep_on", "slaves_connected", "rpl_semi_sync_master_status"]
            .map(|name| settings.value(name));
    vec![
        Check::new(
            "primary",
            read_only == "OFF",
            format!("read_only is {read_only}"),
            "A replica takes no claim, and may lack the latest fences: connect to the primary.",
        ),
        Check::new(
            "galera",
            if galera == "ON" { None } else { Some(true) },
            if galera == "ON" { "a node of a cluster" } else { "no cluster" },
            "Locks of rows end at the node, and another node may read what is older: let all clients \
             use the same node.",
        ),
        Check::new(
            "replicas",
            match (replicas, waits) {
                ("0" | "", _) => Some(true),
                // After a time-out, commits don't wait any more.
                (_, "ON") => None,
                _ => Some(false),
            },
            match (replicas, waits) {
                ("0" | "", _) => "none is connected".to_owned(),
                (number, "ON") => format!("{number}, semi-synchronous"),
                (number, _) => format!("{number}, asynchronous"),
            },
            "A replica that is promoted may lack the latest fences and writes. Older tokens are then \
             accepted again.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the checks that are wrong, and those that can't decide.
    fn wrong_and_undecided(settings: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let safe = [
            ("INNODB_FLUSH_LOG_AT_TRX_COMMIT", "1"),
            ("INNODB_DOUBLEWRITE", "ON"),
            ("LOG_BIN", "OFF"),
            ("SYNC_BINLOG", "0"),
            ("READ_ONLY", "OFF"),
        ];
        let all = safe.iter().chain(settings);
        let all = all.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let settings = Settings(all);
        let checks = [durability(&settings), replication(&settings)].concat();
        let with = |ok| {
            let found = checks.iter().filter(|check| check.ok == ok);
            found.map(|check| check.name.clone()).collect()
        };
        (with(Some(false)), with(None))
    }

    #[test]
    fn each_setting_that_loses_fences_is_named_and_no_other() {
        let nothing = Vec::<String>::new();
        assert_eq!(wrong_and_undecided(&[]), (nothing.clone(), nothing.clone()));
        for (settings, name) in [
            (&[("INNODB_FLUSH_LOG_AT_TRX_COMMIT", "2")][..], "innodb_flush_log_at_trx_commit"),
            (&[("LOG_BIN", "ON")][..], "sync_binlog"),
            (&[("INNODB_FLUSH_METHOD", "nosync")][..], "innodb_flush_method"),
            (&[("INNODB_DOUBLEWRITE", "OFF")][..], "innodb_doublewrite"),
            (&[("READ_ONLY", "ON")][..], "primary"),
            (&[("SLAVES_CONNECTED", "1")][..], "replicas"),
        ] {
            assert_eq!(wrong_and_undecided(settings), (vec![name.to_owned()], nothing.clone()));
        }
        let unclear = [("SLAVES_CONNECTED", "1"), ("RPL_SEMI_SYNC_MASTER_STATUS", "ON")];
        assert_eq!(wrong_and_undecided(&unclear), (nothing.clone(), vec!["replicas".to_owned()]));
        let harmless = [("LOG_BIN", "ON"), ("SYNC_BINLOG", "1")];
        assert_eq!(wrong_and_undecided(&harmless), (nothing.clone(), nothing));
    }
}
