//! A private cluster of three PostgreSQL that fails over by itself: Patroni, over an etcd.

mod guard;
mod member;
mod network;

use std::{os::unix::fs::chown, time::Duration};

use anyhow::bail;
use sqlx::{Connection, PgConnection, query_as, query_scalar};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

pub use self::network::Link;
use self::{guard::Guard, member::Member};
use crate::{
    etcd::Etcd,
    folder::copy_folder,
    postgres::{PACKAGE as POSTGRES, make_cluster},
    process::Process,
    user::User,
};

const MEMBERS: usize = 3;
/// The cluster's name, which the keys in etcd begin with.
const SCOPE: &str = "fenced";
/// How long a start or a failover may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long a member may take to answer. One that is paused never does.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often other ports are tried if another process takes a free one first.
const PORT_ATTEMPTS: usize = 20;

/// What a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// For the primary alone. A promoted standby may lack what was acknowledged.
    Asynchronous,
    /// For a standby that Patroni chooses, and that alone may be promoted (`synchronous_mode`). If
    /// none is left, for the primary alone.
    Synchronous,
    /// For such a standby, and for ever if none is left (`synchronous_mode_strict`).
    StrictlySynchronous,
}

/// A private cluster of three PostgreSQL on free ports of 127.0.0.1. Patroni promotes another one
/// about 12 seconds after the primary's death, or after it was cut off from etcd.
///
/// Its connections pass through a [`Proxy`](crate::Proxy) for each [`Link`], which this process runs.
/// So nothing may block the runtime's thread for seconds.
///
/// Patroni leaves its PostgreSQL running when it is killed. A process of its own ends all of them when
/// this is dropped, and also if this process is killed.
#[derive(Debug)]
pub struct Patroni {
    members: Vec<Member>,
    replication: Replication,
    etcd: Etcd,
    guard: Guard,
    _folder: TempDir,
}

impl Patroni {
    /// Starts one, and waits until both standbys are in step with the primary.
    ///
    /// # Errors
    /// If Patroni, etcd or PostgreSQL isn't installed or doesn't start.
    pub async fn start(replication: Replication) -> anyhow::Result<Self> {
        for _ in 0..PORT_ATTEMPTS {
            let mut cluster = Self::prepare(replication).await?;
            match cluster.launch().await {
                Err(_) if cluster.found_a_port_taken() => {}
                started => return started.map(|()| cluster),
            }
        }
        bail!("{PORT_ATTEMPTS} times a port was free, and another process took it")
    }

    async fn prepare(replication: Replication) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let user = User::unprivileged("postgres", POSTGRES)?;
        if let Some(User { uid, gid }) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let etcd = Etcd::start().await?;
        let mut members = Vec::new();
        for number in 0..MEMBERS {
            members.push(Member::new(number, user, folder.path(), etcd.address(0)).await?);
        }
        // All three begin with the same data, so that no standby has to copy the primary.
        let first = members[0].data();
        make_cluster(&first, user)?;
        members[1..].iter().try_for_each(|member| copy_folder(&first, &member.data()))?;
        let guard = Guard::start(folder.path())?;
        Ok(Self { members, replication, etcd, guard, _folder: folder })
    }

    async fn launch(&mut self) -> anyhow::Result<()> {
        let key = format!("/service/{SCOPE}/config");
        self.etcd.etcdctl(&["put", &key, &settings(self.replication)]).await?;
        for number in 0..MEMBERS {
            self.members[number].launch()?;
        }
        self.in_step(MEMBERS - 1).await
    }

    fn found_a_port_taken(&self) -> bool {
        self.members.iter().any(|member| member.log().contains("Address already in use"))
    }

    /// Returns the URL of a member's database `postgres`, through the link for clients.
    pub fn url(&self, number: usize) -> String {
        format!("postgres://postgres@{}/postgres", self.members[number].network.clients())
    }

    /// Returns the URL of the database `postgres` on whichever member is the primary, for clients that
    /// take several hosts.
    pub fn url_of_the_primary(&self) -> String {
        let hosts: Vec<_> =
            self.members.iter().map(|member| member.network.clients().to_string()).collect();
        format!("postgres://postgres@{}/postgres?target_session_attrs=read-write", hosts.join(","))
    }

    /// Returns the URL of a member's database `postgres` at its Unix socket, which nothing cuts off.
    pub fn socket_url(&self, number: usize) -> String {
        self.members[number].socket_url()
    }

    /// Returns the URL of a member's Patroni.
    pub fn rest_url(&self, number: usize) -> String {
        format!("http://{}", self.members[number].network.rest())
    }

    /// Waits until one of these members has etcd's lock and takes writes, and returns its number.
    ///
    /// # Errors
    /// If none does within two minutes.
    pub async fn primary_among(&self, members: &[usize]) -> anyhow::Result<usize> {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if let Some(number) = self.leader().await?
                && members.contains(&number)
                // While it is being promoted, it may reject connections.
                && self.takes_writes(number).await.unwrap_or(false)
            {
                return Ok(number);
            }
            sleep(POLL_INTERVAL).await;
        }
        bail!("none of the members {members:?} became the primary\n{}", self.logs())
    }

    /// Whether a member takes writes. One that was cut off from etcd may do so, too.
    ///
    /// # Errors
    /// If its PostgreSQL does not answer within 10 seconds.
    pub async fn takes_writes(&self, number: usize) -> anyhow::Result<bool> {
        let asking = async {
            let mut connection = PgConnection::connect(&self.socket_url(number)).await?;
            query_scalar::<_, bool>("select not pg_is_in_recovery()")
                .fetch_one(&mut connection)
                .await
        };
        Ok(timeout(ANSWER_TIMEOUT, asking).await??)
    }

    /// Waits until this many standbys stream from the primary, and their Patronis no longer ask it
    /// anything: one that is cut off from the primary before it is answered waits for ever, and takes
    /// part in no election. If replication is synchronous, waits also until Patroni would promote one of
    /// them.
    ///
    /// # Errors
    /// If fewer do within two minutes.
    pub async fn in_step(&self, standbys: usize) -> anyhow::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if self.are_in_step(standbys).await.unwrap_or(false) {
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
        bail!("fewer than {standbys} standbys came into step\n{}", self.logs())
    }

    async fn are_in_step(&self, standbys: usize) -> anyhow::Result<bool> {
        let Some(primary) = self.leader().await? else { return Ok(false) };
        let asking = async {
            let mut connection = PgConnection::connect(&self.socket_url(primary)).await?;
            query_as::<_, (i64, i64)>(
                "select count(*), count(*) filter (where sync_state = 'sync')
                from pg_stat_replication where state = 'streaming' and not pg_is_in_recovery()",
            )
            .fetch_one(&mut connection)
            .await
        };
        let (streaming, synchronous) = timeout(ANSWER_TIMEOUT, asking).await??;
        // Patroni promotes only a member that its key `sync` names.
        let may_be_promoted = match self.replication {
            Replication::Asynchronous => true,
            Replication::Synchronous | Replication::StrictlySynchronous => {
                synchronous > 0
                    && self.value_at("sync").await?.contains(r#""sync_standby":"member-"#)
            }
        };
        let leader = member::name(primary);
        let quiet = self.members.iter().filter(|member| member.follows_quietly(&leader)).count();
        Ok(usize::try_from(streaming)? >= standbys && quiet >= standbys && may_be_promoted)
    }

    /// Cuts a member off. Both ends of its connections stay open, and receive nothing.
    pub fn cut(&self, number: usize, link: Link) {
        self.members[number].network.cut(link);
    }

    /// Lets new connections of a member through again. Those that were cut are closed.
    pub fn mend(&self, number: usize, link: Link) {
        self.members[number].network.mend(link);
    }

    /// Returns the Patroni of a member, to pause or kill it alone. Its PostgreSQL runs on.
    ///
    /// # Errors
    /// If the member was killed.
    pub fn agent(&mut self, number: usize) -> anyhow::Result<&mut Process> {
        self.members[number].agent()
    }

    /// Pauses a member: Patroni, and all processes of PostgreSQL.
    ///
    /// # Errors
    /// If one does not run.
    pub async fn pause(&mut self, number: usize) -> anyhow::Result<()> {
        self.members[number].pause().await
    }

    /// Resumes the PostgreSQL of a member, and starts its Patroni again. A Patroni before version 3.0.3 that is
    /// resumed after its session has expired takes the lock from the new primary (patroni#2689). What the
    /// new primary has acknowledged is lost then.
    ///
    /// # Errors
    /// If it does not run, or can't be started.
    pub fn resume(&mut self, number: usize) -> anyhow::Result<()> {
        self.members[number].resume()
    }

    /// Kills a member: Patroni, and all processes of PostgreSQL, without a checkpoint.
    ///
    /// # Errors
    /// If PostgreSQL doesn't end.
    pub async fn kill(&mut self, number: usize) -> anyhow::Result<()> {
        self.members[number].kill().await
    }

    /// Starts the Patroni of a member that was killed, and does not wait: it starts PostgreSQL again,
    /// and gives it the data of the primary.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn launch_again(&mut self, number: usize) -> anyhow::Result<()> {
        self.members[number].launch()
    }

    /// Returns the number of the member that has etcd's lock. It may have died since.
    async fn leader(&self) -> anyhow::Result<Option<usize>> {
        let name = self.value_at("leader").await?;
        Ok((0..MEMBERS).find(|&number| name.trim() == member::name(number)))
    }

    async fn value_at(&self, key: &str) -> anyhow::Result<String> {
        let key = format!("/service/{SCOPE}/{key}");
        self.etcd.etcdctl(&["get", &key, "--print-value-only"]).await
    }

    fn logs(&self) -> String {
        let ends: Vec<_> = self.members.iter().map(Member::end_of_log).collect();
        ends.join("\n")
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        // A Patroni that runs would start its PostgreSQL again.
        for member in &mut self.members {
            member.kill_agent();
        }
        self.guard.end_postgres();
    }
}

/// What etcd says to all members. The ttl is at least `loop_wait` and twice `retry_timeout`, as Patroni
/// demands. With a shorter one, a busy machine would lose its primary by itself.
fn settings(replication: Replication) -> String {
    let (synchronous, strictly) = match replication {
        Replication::Asynchronous => (false, false),
        Replication::Synchronous => (true, false),
        Replication::StrictlySynchronous => (true, true),
    };
    format!(
        r#"{{
            "ttl": 12, "loop_wait": 1, "retry_timeout": 5, "maximum_lag_on_failover": 16777216,
            "synchronous_mode": {synchronous}, "synchronous_mode_strict": {strictly},
            "postgresql": {{
                "use_pg_rewind": true, "use_slots": false,
                "remove_data_directory_on_rewind_failure": true,
                "remove_data_directory_on_diverged_timelines": true,
                "parameters": {{"wal_keep_size": "64MB", "wal_retrieve_retry_interval": "100ms"}}
            }}
        }}"#
    )
}
