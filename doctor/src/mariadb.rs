//! A MariaDB: what a crash or a failover loses.

use std::collections::HashMap;

use sqlx::{MySql, Row, mysql::MySqlConnectOptions};

use crate::{
    check::{Check, Cure, Verdict},
    clock::Clock,
    report::Report,
    sql::Session,
};

/// The version that the SQL of the fence and of the locks needs.
const OLDEST: (u32, u32) = (10, 5);
/// The values are the server's, never the session's. The names are in upper case.
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
const FACTS: &str = "
    select current_user(), (select cast(engine as char) from information_schema.tables
        where table_schema = 'fence' and table_name = 'resources')";
const CLOCK: &str = "select cast(floor(unix_timestamp(now)) as signed) as seconds,
    cast(microsecond(now) as signed) as micros from (select sysdate(6) as now) as clock";
const UNSEEN: &str = "whether the disk keeps what was synced; replicas that are not connected now; what may \
                      be promoted; a backup that was restored";

/// Runs all checks.
///
/// # Errors
/// If the database can't be reached.
pub async fn examine(options: &MySqlConnectOptions) -> Result<Report, sqlx::Error> {
    let mut session = Session::<MySql>::connect(options).await?;
    let settings = session.rows(SETTINGS).await?;
    let settings = settings.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let settings = Settings(settings.collect::<Result<_, sqlx::Error>>()?);
    let facts = session.row(FACTS).await?;
    let mut checks = vec![version(settings.value("version"))];
    checks.extend(durability(&settings));
    let engine: Option<String> = facts.try_get(1)?;
    checks.extend(engine.as_deref().map(table));
    checks.extend(replication(&settings));
    let number = settings.value("version").split('-').next().unwrap_or_default();
    let report = Report::new(format!("mariadb {number}"), Some(facts.try_get(0)?), checks);
    Ok(Report { unseen: Some(UNSEEN.to_owned()), ..report })
}

/// Compares the server's clock with this machine's.
///
/// # Errors
/// If the database does not answer any more.
pub async fn clock(session: &mut Session<MySql>) -> Result<Check, sqlx::Error> {
    let mut clock = Clock::default();
    while clock.needs_more() {
        let sample = clock.sample();
        let row = session.row(CLOCK).await?;
        let time: (i64, i64) = (row.try_get("seconds")?, row.try_get("micros")?);
        clock.add(sample, (time.0.unsigned_abs(), time.1.unsigned_abs()));
    }
    Ok(clock.check())
}

struct Settings(HashMap<String, String>);

impl Settings {
    /// Returns a setting, or an empty string if this server does not have it.
    fn value(&self, name: &str) -> &str {
        self.0.get(&name.to_uppercase()).map_or("", String::as_str)
    }
}

fn version(version: &str) -> Check {
    const NAME: &str = "version";
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version.contains("MariaDB") && number >= OLDEST {
        return Check::ok(NAME, version);
    }
    Check::bad(
        Verdict::Unfit,
        NAME,
        format!("{version} is not MariaDB 10.5 or newer"),
        "the procedures of the fence and of the locks need its SQL",
        "name a MariaDB 10.5 or newer",
    )
}

fn table(engine: &str) -> Check {
    const NAME: &str = "table";
    if engine == "InnoDB" {
        return Check::ok(NAME, "fence.resources is InnoDB's");
    }
    Check::bad(
        Verdict::UnfitForFence,
        NAME,
        format!("fence.resources is {engine}'s"),
        "only InnoDB commits the fence and the data in one step",
        Cure::new("convert the table", ["alter table fence.resources engine = InnoDB"]),
    )
}

fn durability(settings: &Settings) -> [Check; 4] {
    const FLUSH: &str = "innodb_flush_log_at_trx_commit";
    const SYNC: &str = "sync_binlog";
    const METHOD: &str = "innodb_flush_method";
    const DOUBLEWRITE: &str = "innodb_doublewrite";
    const LOSS: &str = "a power loss loses acknowledged fences and grants: older tokens are accepted again, \
                        or issued again";
    let [flush, method, doublewrite, log, sync] =
        [FLUSH, METHOD, DOUBLEWRITE, "log_bin", SYNC].map(|name| settings.value(name));
    let bad = |name, found: &str, why, cure: Cure| {
        Check::bad(Verdict::UnfitForFence, name, found, why, cure)
    };
    let global =
        |name| Cure::new("set it in the option file, too", [format!("set global {name} = 1")]);
    let option = |advice: &'static str| Cure::from(advice);
    [
        match flush {
            "1" | "3" => Check::ok(FLUSH, flush),
            _ => bad(FLUSH, flush, LOSS, global(FLUSH)),
        },
        // InnoDB leaves the sync of a commit to the binary log. A restart rolls back each transaction that
        // the binary log has lost. With 3, InnoDB syncs the commit all the same.
        match (log, sync, flush) {
            ("OFF", _, _) => Check::ok(SYNC, "there is no binary log"),
            (_, "1", _) | (_, _, "3") => Check::ok(SYNC, format!("{sync}, with log_bin")),
            _ => bad(
                SYNC,
                &format!("{sync}: the binary log is not synced at each commit"),
                LOSS,
                global(SYNC),
            ),
        },
        match method {
            "nosync" | "littlesync" => {
                bad(METHOD, method, LOSS, option("remove it from the option file"))
            }
            "" => Check::ok(METHOD, "the default"),
            _ => Check::ok(METHOD, method),
        },
        if doublewrite == "OFF" {
            let why = "a crash may leave torn pages, unless the file system prevents them";
            bad(DOUBLEWRITE, doublewrite, why, option("set it to ON in the option file"))
        } else {
            Check::ok(DOUBLEWRITE, doublewrite)
        },
    ]
}

fn replication(settings: &Settings) -> [Check; 3] {
    const PRIMARY: &str = "primary";
    const GALERA: &str = "galera";
    const REPLICAS: &str = "replicas";
    const LAGGARD: &str = "a replica that is promoted may lack the latest fences and grants: older tokens are \
                           accepted again, or issued again";
    const PROMOTION: &str = "promote no replica that lags behind";
    let [read_only, galera, log, replicas, waits] =
        ["read_only", "wsrep_on", "log_bin", "slaves_connected", "rpl_semi_sync_master_status"]
            .map(|name| settings.value(name));
    [
        match read_only {
            "OFF" | "0" => Check::ok(PRIMARY, "it accepts writes"),
            _ => Check::bad(
                Verdict::Unfit,
                PRIMARY,
                format!("it is read-only, as replicas are (read_only is {read_only})"),
                "nothing can be locked or written here",
                "name the primary",
            ),
        },
        match galera {
            "ON" => Check::bad(
                Verdict::Unfit,
                GALERA,
                "a node of a cluster",
                "locks of rows end at the node: another node may read what is older, and grant a lock that is \
                 held",
                "let all clients use one and the same node, or a server outside of the cluster",
            ),
            _ => Check::ok(GALERA, "no cluster"),
        },
        match (replicas, waits, log) {
            ("0" | "", _, "OFF") => Check::ok(REPLICAS, "none, and no binary log for any"),
            ("0" | "", _, _) => Check::bad(
                Verdict::Warning,
                REPLICAS,
                "none is connected, but it writes a binary log, as for replicas",
                LAGGARD,
                PROMOTION,
            ),
            // After a time-out, commits don't wait any more.
            (number, "ON", _) => Check::bad(
                Verdict::Unseen,
                REPLICAS,
                format!("{number}, semi-synchronous"),
                LAGGARD,
                PROMOTION,
            ),
            (number, _, _) => Check::bad(
                Verdict::UnfitForFence,
                REPLICAS,
                format!("{number}, asynchronous"),
                LAGGARD,
                PROMOTION,
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the checks that are not ok.
    fn complaints(settings: &[(&str, &str)]) -> Vec<(String, Verdict)> {
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
        let checks = durability(&settings).into_iter().chain(replication(&settings));
        let bad = checks.filter(|check| check.verdict != Verdict::Ok);
        bad.map(|check| (check.name.into_owned(), check.verdict)).collect()
    }

    #[test]
    fn each_setting_that_loses_commits_is_named_and_no_other() {
        assert_eq!(complaints(&[]), []);
        let unfit_for_fence = Verdict::UnfitForFence;
        for (settings, name, verdict) in [
            (
                &[("INNODB_FLUSH_LOG_AT_TRX_COMMIT", "2")][..],
                "innodb_flush_log_at_trx_commit",
                unfit_for_fence,
            ),
            (&[("INNODB_FLUSH_METHOD", "nosync")], "innodb_flush_method", unfit_for_fence),
            (&[("INNODB_DOUBLEWRITE", "OFF")], "innodb_doublewrite", unfit_for_fence),
            (&[("READ_ONLY", "ON")], "primary", Verdict::Unfit),
            (&[("WSREP_ON", "ON")], "galera", Verdict::Unfit),
            (&[("SLAVES_CONNECTED", "1")], "replicas", unfit_for_fence),
            (
                &[("SLAVES_CONNECTED", "1"), ("RPL_SEMI_SYNC_MASTER_STATUS", "ON")],
                "replicas",
                Verdict::Unseen,
            ),
            (&[("LOG_BIN", "ON"), ("SYNC_BINLOG", "1")], "replicas", Verdict::Warning),
        ] {
            assert_eq!(complaints(settings), [(name.to_owned(), verdict)], "{settings:?}");
        }
        let unsynced = [
            ("sync_binlog".to_owned(), unfit_for_fence),
            ("replicas".to_owned(), Verdict::Warning),
        ];
        assert_eq!(complaints(&[("LOG_BIN", "ON")]), unsynced);
    }
}
