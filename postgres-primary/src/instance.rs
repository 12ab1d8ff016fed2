//! Which PostgreSQL a session has reached, and which one of several is the primary.
//!
//! Each promotion begins a new timeline, so the primary with the highest timeline is the one that was
//! promoted last. An old primary may go on without knowing that: it was paused, or cut off.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use sqlx::{PgConnection, Row};

/// What a PostgreSQL says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The identifier that a primary shares with its standbys.
    pub system: i64,
    /// Of a standby, the timeline may lag behind.
    pub timeline: i64,
    /// What it is now.
    pub role: Role,
    /// When it was started. Two addresses with the same moment lead to one server.
    pub started: String,
}

/// What a PostgreSQL is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It follows a primary.
    Standby,
}

impl Instance {
    /// Asks the PostgreSQL that a session has reached.
    ///
    /// # Errors
    /// Those of the session.
    pub async fn ask(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        // The name of a file of the log begins with its timeline. A standby can't tell that name.
        let row = sqlx::raw_sql(
            r#"
            select s.system_identifier,
                case when pg_is_in_recovery()
                    then greatest(c.timeline_id, r.min_recovery_end_timeline)::bigint
                    else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint
                end,
                pg_is_in_recovery(), pg_postmaster_start_time()::text
            from pg_control_system() s, pg_control_checkpoint() c, pg_control_recovery() r
            "#,
        )
        .fetch_one(connection)
        .await?;
        let is_standby = row.try_get(2)?;
        let (system, timeline, started) = (row.try_get(0)?, row.try_get(1)?, row.try_get(3)?);
        let role = if is_standby { Role::Standby } else { Role::Primary };
        Ok(Self { system, timeline, role, started })
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Primary => "a primary",
            Role::Standby => "a standby",
        };
        write!(f, "{role} at timeline {}", self.timeline)
    }
}

/// The system, and the highest timeline that this program has seen in it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Newest(Arc<Mutex<Option<(i64, i64)>>>);

impl Newest {
    /// Takes note of a primary, and returns whether it is newer than all before.
    ///
    /// # Errors
    /// The reason why it must not be used: it is older, or of another system.
    pub fn admit(&self, instance: &Instance) -> Result<bool, String> {
        let mut newest = self.0.lock().expect("no panic while it is held");
        let (system, timeline) = *newest.get_or_insert((instance.system, instance.timeline));
        if instance.system != system {
            return Err("it is another database cluster than before. If that is meant, restart \
                        this program"
                .to_owned());
        }
        if instance.timeline < timeline {
            return Err(format!(
                "it is {instance}, and timeline {timeline} has begun: it is an old primary"
            ));
        }
        *newest = Some((system, instance.timeline));
        Ok(instance.timeline > timeline)
    }

    /// Checks that a standby belongs to the system. Its timeline may lag behind.
    ///
    /// # Errors
    /// The reason why it must not be used.
    pub fn recognise(&self, instance: &Instance) -> Result<(), String> {
        let newest = self.0.lock().expect("no panic while it is held");
        match *newest {
            Some((system, _)) if system != instance.system => {
                Err("it is of another database cluster than the primary".to_owned())
            }
            Some(_) => Ok(()),
            None => Err("the primary was not reached yet".to_owned()),
        }
    }

    /// The highest timeline that was seen.
    pub fn timeline(&self) -> Option<i64> {
        self.0.lock().expect("no panic while it is held").map(|(_, timeline)| timeline)
    }

    /// Chooses the primary among hosts, and returns its place. Takes note of the timelines of all, also
    /// of standbys: one that follows a newer primary shows that the others are old.
    ///
    /// # Errors
    /// If there is none, or if two were promoted to the same timeline. Both may have taken writes
    /// that the other one does not have, and nothing says which one is right.
    pub fn choose(&self, hosts: &[Result<Instance, String>]) -> Result<usize, NoPrimary> {
        let mut newest = self.0.lock().expect("no panic while it is held");
        let answered = || hosts.iter().flatten();
        let system = newest.map(|(system, _)| system);
        let Some(system) = system.or_else(|| answered().map(|it| it.system).next()) else {
            return Err(NoPrimary::NoneAnswered);
        };
        if newest.is_none() && answered().any(|it| it.system != system) {
            return Err(NoPrimary::OtherSystem);
        }
        let seen = newest.map_or(0, |(_, timeline)| timeline);
        let own = || answered().filter(|it| it.system == system);
        let highest = own().map(|it| it.timeline).fold(seen, i64::max);
        *newest = Some((system, highest));
        let is_primary = |it: &Instance| {
            it.system == system && it.role == Role::Primary && it.timeline == highest
        };
        let mut primaries =
            (0..hosts.len()).filter(|&host| hosts[host].as_ref().is_ok_and(is_primary));
        let first = primaries.next().ok_or(NoPrimary::None)?;
        let started = |host: usize| hosts[host].as_ref().map(|it| &it.started);
        match primaries.find(|&host| started(host) != started(first)) {
            Some(_) => Err(NoPrimary::Several),
            None => Ok(first),
        }
    }
}

/// Why none of several hosts was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPrimary {
    /// No host has answered.
    #[error("no host has answered")]
    NoneAnswered,
    /// Those that have answered are standbys, or old primaries.
    #[error("no host is the newest primary")]
    None,
    /// Two primaries are at the same timeline.
    #[error(
        "two primaries were promoted to the same timeline, and each may have writes that the other \
         lacks. Stop the wrong one"
    )]
    Several,
    /// Another primary than the one that was followed is at its timeline.
    #[error(
        "another server is primary on the timeline of the former one, and each may have writes that \
         the other lacks. Bring the former one back, promote one to a newer timeline, or, if the other \
         one is right, restart this program"
    )]
    Rival,
    /// The hosts have nothing to do with each other.
    #[error("the hosts belong to different database clusters")]
    OtherSystem,
}

#[cfg(test)]
mod tests {
    use super::{Role::*, *};

    fn at(timeline: i64, role: Role, started: &str) -> Result<Instance, String> {
        Ok(Instance { system: 7, timeline, role, started: started.to_owned() })
    }

    fn down() -> Result<Instance, String> {
        Err("no answer".to_owned())
    }

    #[test]
    fn primary_of_the_highest_timeline_is_chosen() {
        let (none, several) = (Err(NoPrimary::None), Err(NoPrimary::Several));
        for (hosts, chosen) in [
            (vec![at(1, Standby, "a"), at(1, Primary, "b")], Ok(1)),
            (vec![at(1, Primary, "a"), at(2, Primary, "b")], Ok(1)),
            (vec![down(), at(2, Primary, "b"), at(1, Primary, "c")], Ok(1)),
            (vec![at(1, Standby, "a"), at(2, Primary, "b")], Ok(1)),
            (vec![at(1, Standby, "a"), down()], none),
            (vec![down(), down()], Err(NoPrimary::NoneAnswered)),
            // A standby follows a newer primary that this program does not reach.
            (vec![at(1, Primary, "a"), down(), at(2, Standby, "c")], none),
            (vec![at(2, Primary, "a"), at(2, Primary, "b")], several),
            (vec![at(2, Primary, "a"), at(2, Primary, "b"), at(3, Primary, "c")], Ok(2)),
            // Two addresses of one server.
            (vec![at(2, Primary, "a"), at(2, Primary, "a")], Ok(0)),
        ] {
            assert_eq!(Newest::default().choose(&hosts), chosen, "{hosts:?}");
        }
    }

    #[test]
    fn old_primary_is_never_used_again() {
        let (old, new) = (at(1, Primary, "a"), at(2, Primary, "b"));
        let newest = Newest::default();
        assert_eq!(newest.choose(&[old.clone(), down()]), Ok(0), "the control");
        assert_eq!(newest.admit(old.as_ref().unwrap()), Ok(false), "the control");
        assert_eq!(newest.choose(&[old.clone(), new.clone()]), Ok(1));
        assert_eq!(newest.choose(&[old.clone(), down()]), Err(NoPrimary::None));
        assert!(newest.admit(old.as_ref().unwrap()).unwrap_err().contains("an old primary"));
        assert_eq!(newest.admit(new.as_ref().unwrap()), Ok(false));

        let newest = Newest::default();
        assert_eq!(newest.admit(old.as_ref().unwrap()), Ok(false));
        assert_eq!(newest.admit(new.as_ref().unwrap()), Ok(true), "all sessions are replaced");
        assert!(newest.admit(old.as_ref().unwrap()).is_err());
    }

    #[test]
    fn another_cluster_is_never_used() {
        let own = at(1, Primary, "a");
        let other = Ok(Instance { system: 8, ..at(9, Primary, "b").unwrap() });
        let newest = Newest::default();
        let hosts = [own.clone(), other.clone()];
        assert_eq!(newest.choose(&hosts), Err(NoPrimary::OtherSystem));
        assert_eq!(newest.admit(own.as_ref().unwrap()), Ok(false));
        assert!(newest.admit(other.as_ref().unwrap()).is_err());
        let standby = |system| Instance { system, role: Standby, ..own.clone().unwrap() };
        assert!(newest.recognise(&standby(8)).unwrap_err().contains("another database cluster"));
        assert_eq!(newest.recognise(&standby(7)), Ok(()), "the control");
        assert_eq!(newest.choose(&hosts), Ok(0));
        assert_eq!(newest.choose(&[down(), other]), Err(NoPrimary::None));
    }
}
