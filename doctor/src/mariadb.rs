//! A MariaDB: what a crash or a failover loses.

use std::collections::HashMap;

use sqlx::{MySql, Row, mysql::MySqlConnectOptions};

use crate::{
    check::{Check, Cure, Verdict},
    clock, connections,
    report::Report,
    sql::Session,
    version,
};

/// The version that the SQL of the fence and of the locks needs.
const OLDEST: [u32; 2] = [10, 5];
const FLUSH: &str = "innodb_flush_log_at_trx_commit";
/// The values are the server's, never the session's. The names are in upper case.
const SETTINGS: &str = "
    select cast(variable_name as char), cast(variable_value as char)
    from information_schema.global_variables
    where variable_name in (
        'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'innodb_doublewrite', 'log_bin',
        'sync_binlog', 'read_only', 'wsrep_on'
    )
    union all
    select cast(variable_name as char), cast(variable_value as char)
    from information_schema.global_status
    where variable_name in ('slaves_connected', 'rpl_semi_sync_master_status')";
/// The tables of the fence and of the locks, as far as they are here.
const TABLES: &str = "
    select cast(concat(table_schema, '.', table_name) as char), cast(engine as char)
    from information_schema.tables
    where (table_schema = 'fence' and table_name = 'resources')
        or (table_schema = database() and table_name = 'fenced_lock')";
const STATUS: &str = "
    select count(*) from information_schema.tables where table_schema = 'fence' and table_name = 'status'";
/// The protected tables, and what is wrong with them.
const PROTECTED: &str = "
    select cast(protected as char), cast(problem as char) from fence.status";
/// The limit of connections that is reached first, of this user's and the server's, and how many of those
/// are open. Each user sees its own in the list.
const CONNECTIONS: &str = "
    select cast(most as signed), cast(open as signed)
    from (
        select @@global.max_connections as most, (
            select variable_value from information_schema.global_status
            where variable_name = 'THREADS_CONNECTED') as open
        union all
        select @@session.max_user_connections, (
            select count(*) from information_schema.processlist
            where user = substring_index(user(), '@', 1))
    ) as limits
    where most > 0
    order by cast(most as signed) - cast(open as signed) limit 1";
const CLOCK: &str = "select cast(unix_timestamp(sysdate(6)) * 1000000 as signed)";
const UNSEEN: &str = "whether the disk keeps what was synced; replicas that are not connected now; what may \
                      be promoted; a backup that was restored";

/// Runs all checks.
///
/// # Errors
/// If the database can't be reached.
pub async fn examine(options: &MySqlConnectOptions) -> Result<Report, sqlx::Error> {
    let mut session = Session::<MySql>::connect(options).await?;
    let facts = session.row("select version(), current_user()").await?;
    let (title, user): (String, String) = (facts.try_get(0)?, facts.try_get(1)?);
    let version = version(&title);
    let is_usable = version.verdict == Verdict::Ok;
    let number = title.split('-').next().unwrap_or_default();
    let mut report = Report::new(format!("mariadb {number}"), Some(user), vec![version]);
    report.unseen = Some(UNSEEN.to_owned());
    if !is_usable {
        return Ok(report);
    }
    let settings = session.rows(SETTINGS).await?;
    let settings = settings.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let settings = Settings(settings.collect::<Result<_, sqlx::Error>>()?);
    let checks = &mut report.checks;
    checks.extend(durability(&settings));
    for row in session.rows(TABLES).await? {
        checks.push(table(row.try_get(0)?, row.try_get(1)?));
    }
    if session.row(STATUS).await?.try_get::<i64, _>(0)? == 1 {
        let tables = session.rows(PROTECTED).await?;
        let tables = tables.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        checks.extend(protected(tables.collect::<Result<_, sqlx::Error>>()?));
    }
    checks.extend(replication(&settings));
    Ok(report)
}

/// Compares the server's clock with this machine's.
///
/// # Errors
/// If the database does not answer any more.
pub async fn clock(session: &mut Session<MySql>) -> Result<Check, sqlx::Error> {
    clock::compare(async || Ok(session.row(CLOCK).await?.try_get::<i64, _>(0)?.into())).await
}

/// Compares the limits of connections with what clients of the locks need.
///
/// # Errors
/// If the database does not answer any more.
pub async fn connections(session: &mut Session<MySql>) -> Result<Check, sqlx::Error> {
    let row = session.row(CONNECTIONS).await?;
    Ok(connections::room(row.try_get(0)?, row.try_get(1)?, 1))
}

struct Settings(HashMap<String, String>);

impl Settings {
    /// Returns a setting, or an empty string if this server does not have it.
    fn value(&self, name: &str) -> &str {
        self.0.get(&name.to_uppercase()).map_or("", String::as_str)
    }
}

fn version(version: &str) -> Check {
    let is_new = version::numbers(version).is_some_and(|numbers| numbers[..] >= OLDEST[..]);
    Check::ok("version", version).unless(
        version.contains("MariaDB") && is_new,
        Verdict::Unfit,
        "the procedures of the fence and of the locks need the SQL of MariaDB 10.5",
        "name a MariaDB 10.5 or newer",
    )
}

fn table(name: &str, engine: &str) -> Check {
    Check::ok("table", format!("{name} is {engine}'s")).unless(
        engine == "InnoDB",
        Verdict::UnfitForFence,
        "only InnoDB keeps what it has committed, and commits the fence and the data in one step",
        Cure::new("convert the table", [format!("alter table {name} engine = InnoDB")]),
    )
}

/// One check for each table with a problem, or one for all.
fn protected(tables: Vec<(String, Option<String>)>) -> Vec<Check> {
    const NAME: &str = "protected_tables";
    let count = tables.len();
    let problems = tables.into_iter().filter_map(|(table, problem)| Some((table, problem?)));
    let mut checks: Vec<Check> = problems
        .map(|(table, problem)| {
            Check::ok(NAME, format!("{table}: {problem}")).unless(
                false,
                Verdict::UnfitForFence,
                "a write without a valid token is not rejected, or is not undone",
                cure(&table, &problem),
            )
        })
        .collect();
    if checks.is_empty() {
        checks.push(Check::ok(NAME, format!("{count}, without a problem")));
    }
    checks
}

fn cure(table: &str, problem: &str) -> Cure {
    const NO_COMMANDS: [String; 0] = [];
    match problem {
        "no table" => Cure::new(
            "protect it under its new name if it was renamed, and end the protection of the former one",
            [format!("call fence.unprotect('{}')", table.replace('\'', "''"))],
        ),
        "tablespace discarded" => {
            Cure::new("import its tablespace, or restore the table", NO_COMMANDS)
        }
        "unregistered" => Cure::new(
            "restore the fences that belong to it, and execute what fence.protect_sql prints",
            NO_COMMANDS,
        ),
        "engine none" => Cure::new("protect the table below the view instead", NO_COMMANDS),
        _ if problem.starts_with("engine ") => {
            let (database, name) = table.split_once('.').unwrap_or_default();
            let [database, name] = [database, name].map(|part| part.replace('`', "``"));
            Cure::new(
                "make it a table of InnoDB, and execute again what fence.protect_sql prints",
                [format!("alter table `{database}`.`{name}` engine = InnoDB")],
            )
        }
        _ => Cure::new("execute again what fence.protect_sql prints", NO_COMMANDS),
    }
}

fn durability(settings: &Settings) -> [Check; 4] {
    const LOSS: &str = "a power loss loses acknowledged fences and grants: older tokens are accepted or issued again";
    let check = |name: &'static str, is_safe: fn(&Settings, &str) -> bool, why, cure: Cure| {
        let value = settings.value(name);
        let is_safe = is_safe(settings, value);
        Check::ok(name, value).unless(is_safe, Verdict::UnfitForFence, why, cure)
    };
    let set = |name: &str| {
        Cure::new("set it in the option file, too", [format!("set global {name} = 1")])
    };
    [
        check(FLUSH, |_, flush| ["1", "3"].contains(&flush), LOSS, set(FLUSH)),
        // InnoDB leaves the sync of a commit to the binary log. A restart rolls back each transaction that the binary
        // log has lost. With 3, InnoDB syncs the commit all the same.
        check(
            "sync_binlog",
            |all, sync| all.value("log_bin") == "OFF" || sync == "1" || all.value(FLUSH) == "3",
            LOSS,
            set("sync_binlog"),
        ),
        check(
            "innodb_flush_method",
            |_, method| !["nosync", "littlesync"].contains(&method),
            LOSS,
            "remove it from the option file".into(),
        ),
        check(
            "innodb_doublewrite",
            |_, doublewrite| doublewrite != "OFF",
            "a crash may leave torn pages, unless the file system prevents them",
            "set it to ON in the option file".into(),
        ),
    ]
}

fn replication(settings: &Settings) -> [Check; 3] {
    const LAGGARD: &str = "a replica that is promoted may lack the latest fences and grants: older tokens are accepted or \
                           issued again";
    const PROMOTION: &str = "promote no replica that lags behind";
    let [read_only, wsrep_on, log_bin, replicas, semi_sync] =
        ["read_only", "wsrep_on", "log_bin", "slaves_connected", "rpl_semi_sync_master_status"]
            .map(|name| settings.value(name));
    let has_replicas = !["", "0"].contains(&replicas);
    let found =
        format!("{replicas} connected; log_bin is {log_bin}; semi-synchronous: {semi_sync}");
    [
        Check::ok("primary", format!("read_only is {read_only}")).unless(
            ["OFF", "0"].contains(&read_only),
            Verdict::Unfit,
            "nothing can be locked or written here, as on a replica",
            "name the primary",
        ),
        Check::ok("galera", format!("wsrep_on is {wsrep_on}")).unless(
            wsrep_on != "ON",
            Verdict::Unfit,
            "locks of rows end at the node of a cluster: another node may read what is older, and grant a lock that is \
             held",
            "let all clients use one and the same node, or a server outside of the cluster",
        ),
        Check::ok("replicas", found)
            .unless(!has_replicas || semi_sync == "ON", Verdict::UnfitForFence, LAGGARD, PROMOTION)
            // After a time-out, commits don't wait any more.
            .unless(!has_replicas, Verdict::Unseen, LAGGARD, PROMOTION)
            .unless(log_bin == "OFF", Verdict::Warning, LAGGARD, PROMOTION),
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
    fn each_problem_of_a_protected_table_has_a_cure_of_its_own() {
        let commands = |problem: &str| {
            let problem = Some(problem.to_owned());
            let mut checks = protected(vec![("mydatabase.accounts".to_owned(), problem)]);
            checks.remove(0).cure.unwrap().commands
        };
        assert_eq!(commands("no table"), ["call fence.unprotect('mydatabase.accounts')"]);
        assert_eq!(
            commands("engine MyISAM"),
            ["alter table `mydatabase`.`accounts` engine = InnoDB"]
        );
        for by_hand in
            ["insert missing", "update different", "unregistered", "tablespace discarded"]
        {
            assert!(commands(by_hand).is_empty(), "{by_hand}");
        }
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
