//! A private PostgreSQL of three members beneath storage servers, and what happens to it.

use std::time::Duration;

use anyhow::Context;
use fence::Token;
use sqlx::{Connection, PgConnection, query_scalar};
use testbed::{
    Patroni,
    patroni::{Link, Replication},
    wait::until_async,
};

use super::{scene::Scene, storage::Storage};
use crate::record::{Actor, Danger, EventKind, Recorder};

const MEMBERS: [usize; 3] = [0, 1, 2];
/// How long standbys may take to receive what they lack, and a commit until it waits.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    members: Patroni,
    /// The number of the primary.
    primary: usize,
    /// The further arguments of its storage servers.
    arguments: &'static [&'static str],
    resource: &'static str,
    recorder: Recorder,
}

impl Cluster {
    /// Starts one in which a commit waits for the primary alone.
    pub(crate) async fn start_asynchronous(
        resource: &'static str,
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        Self::start(Replication::Asynchronous, &[], resource, scene).await
    }

    /// Starts one in which a commit waits for a standby, unless the world's danger strikes.
    pub(crate) async fn start_in_world(
        resource: &'static str,
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        match scene.world.danger {
            Danger::Strikes => Self::start_asynchronous(resource, scene).await,
            Danger::Averted => {
                let arguments = &["--require-sync-standby", "1"];
                Self::start(Replication::StrictlySynchronous, arguments, resource, scene).await
            }
        }
    }

    async fn start(
        replication: Replication,
        arguments: &'static [&'static str],
        resource: &'static str,
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        let members = Patroni::start(replication).await?;
        let primary = members.primary_among(&MEMBERS).await?;
        Ok(Self { members, primary, arguments, resource, recorder: scene.recorder.clone() })
    }

    /// Starts a storage server, which follows the primary.
    pub(crate) async fn storage(&self) -> anyhow::Result<Storage> {
        Storage::start_on(&self.members.url_of_the_primary(), self.arguments).await
    }

    /// Starts a storage server on the primary's side, if the network splits. It knows no other member.
    pub(crate) async fn storage_beside_the_primary(&self) -> anyhow::Result<Storage> {
        Storage::start_on(&self.primary_url(), self.arguments).await
    }

    /// The URL of the present primary, which nothing cuts off.
    pub(crate) fn primary_url(&self) -> String {
        self.members.socket_url(self.primary)
    }

    /// Cuts the standbys off from the primary, once they have all that it has.
    pub(crate) async fn cut_off_standbys(&self) -> anyhow::Result<()> {
        let mut primary = self.connect().await?;
        let written: String =
            query_scalar("select pg_current_wal_flush_lsn()::text").fetch_one(&mut primary).await?;
        let have_all = async || {
            let mut primary = self.connect().await?;
            let received = "select count(*) from pg_stat_replication where flush_lsn >= $1::pg_lsn";
            let received: i64 =
                query_scalar(received).bind(&written).fetch_one(&mut primary).await?;
            Ok(usize::try_from(received)? == MEMBERS.len() - 1)
        };
        until_async(PATIENCE, have_all).await.context("the standbys lag behind")?;
        self.members.cut(self.primary, Link::Members);
        self.record(None, EventKind::StandbysCutOff);
        Ok(())
    }

    /// Waits until a commit of a storage server waits for a standby.
    pub(crate) async fn commit_waits(&self) -> anyhow::Result<()> {
        let waits = async || {
            let waits = "select exists (
                select from pg_stat_activity
                where wait_event = 'SyncRep' and application_name = 'storage-server'
            )";
            Ok(query_scalar(waits).fetch_one(&mut self.connect().await?).await?)
        };
        until_async(PATIENCE, waits).await.context("no commit waits for a standby")?;
        self.record(None, EventKind::CommitWaits);
        Ok(())
    }

    /// Kills the primary: its PostgreSQL, and its Patroni.
    pub(crate) async fn kill_primary(&mut self) -> anyhow::Result<()> {
        self.members.kill(self.primary).await?;
        self.record(None, EventKind::PrimaryKilled);
        Ok(())
    }

    /// Cuts the primary off from the other members, from etcd, and from clients on their side. Its
    /// Patroni would make it a standby, so that is paused: nothing is left that could stop it.
    pub(crate) async fn cut_off_primary(&mut self) -> anyhow::Result<()> {
        self.members.agent(self.primary)?.pause().await?;
        for link in [Link::Etcd, Link::Members, Link::Clients] {
            self.members.cut(self.primary, link);
        }
        self.record(None, EventKind::PrimaryCutOff);
        Ok(())
    }

    /// Waits until another member is the primary.
    pub(crate) async fn standby_promoted(&mut self) -> anyhow::Result<()> {
        let others: Vec<_> = MEMBERS.into_iter().filter(|member| *member != self.primary).collect();
        self.primary = self.members.primary_among(&others).await?;
        let token: Option<Option<i64>> =
            query_scalar("select token from storage.resource where resource = $1")
                .bind(self.resource)
                .fetch_optional(&mut self.connect().await?)
                .await?;
        let token = token.flatten().map(|token| anyhow::Ok(Token::new(u64::try_from(token)?)?));
        self.record(token.transpose()?, EventKind::StandbyPromoted);
        Ok(())
    }

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.primary_url()).await?)
    }

    fn record(&self, token: Option<Token>, kind: EventKind) {
        self.recorder.record(Actor::Database, token, kind);
    }
}
