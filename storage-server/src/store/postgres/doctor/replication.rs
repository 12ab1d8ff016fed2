//! Which standbys there are, and which of them a commit waits for.

use sqlx::{Executor, FromRow, PgConnection, Row};

use super::patroni::Patroni;
use crate::store::doctor::{Finding, Verdict};

const WHY: &str = "A standby that lacks a commit must not be promoted: fences that were acknowledged would \
                   be lost with the primary. One that is asynchronous may lack it, and so may one of a \
                   quorum. Name each standby that may be promoted in synchronous_standby_names, as with \
                   FIRST 2 (a, b).";
const HIDDEN: &str = "The role sees only that they exist: grant pg_read_all_stats to it.";

/// The standbys that are connected, and the setting for them.
#[derive(Debug)]
pub(super) struct Replication {
    names: String,
    /// Whether Patroni has a session.
    pub(super) has_patroni: bool,
    standbys: Vec<Standby>,
}

/// A standby. Its state is hidden from roles without the right to see it.
#[derive(Debug, FromRow)]
struct Standby {
    name: String,
    sync_state: Option<String>,
}

impl Replication {
    pub(super) async fn ask(session: &mut PgConnection) -> Result<Self, sqlx::Error> {
        let settings = "select current_setting('synchronous_standby_names'),
            exists (select from pg_stat_activity where application_name = 'Patroni')";
        let settings = session.fetch_one(sqlx::raw_sql(settings)).await?;
        let (names, has_patroni) = (settings.try_get(0)?, settings.try_get(1)?);
        // Not those of logical replication or backups.
        let standbys = r#"
            select coalesce(nullif(r.application_name, ''), r.pid::text) as name, r.sync_state
            from pg_stat_replication r
            where r.state is distinct from 'backup' and not exists (
                select from pg_replication_slots s
                where s.active_pid = r.pid and s.slot_type = 'logical'
            )
            order by 1, 2
        "#;
        let standbys = session.fetch_all(sqlx::raw_sql(standbys)).await?;
        let standbys = standbys.iter().map(Standby::from_row).collect::<Result<_, _>>()?;
        Ok(Self { names, has_patroni, standbys })
    }

    pub(super) fn finding(&self, patroni: &Patroni) -> Finding {
        let is_hidden = self.standbys.iter().any(|standby| standby.sync_state.is_none());
        let title = |standby: &Standby| {
            format!("{} ({})", standby.name, standby.sync_state.as_deref().unwrap_or("hidden"))
        };
        let titles: Vec<_> = self.standbys.iter().map(title).collect();
        let found = match (titles.is_empty(), self.names.as_str()) {
            (true, _) => "none is connected".to_owned(),
            (false, "") => {
                format!("{}; synchronous_standby_names is empty", titles.join(", "))
            }
            (false, names) => {
                format!("{}; synchronous_standby_names is {names}", titles.join(", "))
            }
        };
        let why = if is_hidden { HIDDEN } else { WHY };
        Finding { check: "standbys", verdict: self.verdict(is_hidden, patroni), found, why }
    }

    fn verdict(&self, is_hidden: bool, patroni: &Patroni) -> Verdict {
        let number = |states: &[&str]| {
            let has =
                |it: &&Standby| it.sync_state.as_deref().is_some_and(|it| states.contains(&it));
            self.standbys.iter().filter(has).count()
        };
        let may_lack_a_commit = number(&["async", "potential"]) > 0 || number(&["quorum"]) > 1;
        if self.standbys.is_empty() {
            Verdict::Ok
        } else if is_hidden {
            Verdict::Unknown
        } else if self.names.is_empty() {
            Verdict::Wrong
        } else if !may_lack_a_commit || patroni.chooses_synchronous_ones() {
            Verdict::Ok
        } else if number(&["async", "potential"]) > 0 && matches!(patroni, Patroni::NotSeen) {
            Verdict::Wrong
        } else {
            // It depends on what promotes a standby, which SQL doesn't show.
            Verdict::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: Patroni = Patroni::Settings { synchronous_mode: true, strict: true };
    const ASYNCHRONOUS: Patroni = Patroni::Settings { synchronous_mode: false, strict: false };

    fn verdict(names: &str, states: &[&str], patroni: &Patroni) -> Verdict {
        let standby = |state: &&str| Standby {
            name: "a".to_owned(),
            sync_state: (*state != "hidden").then(|| (*state).to_owned()),
        };
        let standbys = states.iter().map(standby).collect();
        let replication = Replication { names: names.to_owned(), has_patroni: false, standbys };
        replication.finding(patroni).verdict
    }

    #[test]
    fn standbys_that_may_lack_a_commit_are_found() {
        let (ok, wrong, unknown) = (Verdict::Ok, Verdict::Wrong, Verdict::Unknown);
        for (names, states, patroni, expected) in [
            ("", &[][..], Patroni::NotSeen, ok),
            ("", &["async"], Patroni::NotSeen, wrong),
            ("", &["hidden"], Patroni::NotSeen, unknown),
            ("a", &["sync"], Patroni::NotSeen, ok),
            ("first 2 (a, b)", &["sync", "sync"], Patroni::NotSeen, ok),
            ("a", &["sync", "async"], Patroni::NotSeen, wrong),
            ("a, b", &["sync", "potential"], Patroni::NotSeen, wrong),
            ("any 1 (a, b)", &["quorum", "quorum"], Patroni::NotSeen, unknown),
            ("any 1 (a)", &["quorum"], Patroni::NotSeen, ok),
            ("a", &["sync", "hidden"], Patroni::NotSeen, unknown),
            // Patroni promotes only a synchronous one, in this mode.
            ("a", &["sync", "async"], STRICT, ok),
            ("a", &["sync", "async"], Patroni::Seen, unknown),
            ("a", &["sync", "async"], ASYNCHRONOUS, unknown),
            ("", &["async"], STRICT, wrong),
        ] {
            assert_eq!(
                verdict(names, states, &patroni),
                expected,
                "{names:?} {states:?} {patroni:?}"
            );
        }
    }
}
