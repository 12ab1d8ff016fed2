//! A primary that Redis Sentinels know.
//!
//! The crate `redis` has a client for Sentinels, too. As there, an entry counts only if it is not
//! down, and `ROLE` must confirm it. But that client gives each Sentinel half a second, whatever the
//! settings say, and believes the first that answers. `INFO replication` is not asked: it is for
//! servers older than `ROLE`.

mod failure;
mod reports;

use std::{collections::HashMap, fmt};

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{
    Client, ConnectionInfo, RedisConnectionInfo, RedisResult, Role, aio::MultiplexedConnection,
};

use self::{
    failure::{Failed, Step, is_not_found, most_telling, not_found, of_sentinel, without_answer},
    reports::{Report, Reports},
};
use super::{
    super::settings::{TimeLimits, within},
    certificates::{Certificates, UsedCertificates},
    url::{
        RedisUrl, SENTINEL_PASSWORD, SENTINEL_USER, USER_WITHOUT_PASSWORD, address_beside,
        connection_info, connection_settings, rejected,
    },
};
use crate::service_url::{InvalidUrl, addresses, decoded};

pub(super) struct Sentinels {
    /// The Sentinels, with the user there.
    sentinels: Vec<ConnectionInfo>,
    /// The user, the password and the database of the primary.
    redis: RedisConnectionInfo,
    certificates: Certificates,
    primary: String,
    hosts: String,
}

impl Sentinels {
    pub(super) fn parse(url: &RedisUrl<'_>) -> Result<Self, InvalidUrl> {
        let parts = &url.parts;
        let (primary, database) = parts.path.split_once('/').unwrap_or((&parts.path, ""));
        if primary.is_empty() {
            return Err(InvalidUrl::new("/NAME, the primary's name, must follow the Sentinels"));
        }
        let redis = connection_settings(parts)?;
        let mut user = RedisConnectionInfo::default();
        match [SENTINEL_USER, SENTINEL_PASSWORD].map(|name| parts.settings.get(name)) {
            [Some(_), None] => return Err(InvalidUrl::new(USER_WITHOUT_PASSWORD)),
            [Some(name), Some(password)] => user = user.set_username(name).set_password(password),
            [None, Some(password)] => user = user.set_password(password),
            [None, None] => {}
        }
        let sentinels = url.addresses().into_iter().map(|address| connection_info(address, &user));
        Ok(Self {
            sentinels: sentinels.collect::<RedisResult<_>>().map_err(rejected)?,
            redis: redis.set_db(url.database(database)?),
            certificates: Certificates::open(url)?,
            primary: decoded(primary)?,
            hosts: addresses(&parts.members),
        })
    }

    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<MultiplexedConnection> {
        self.find(limits).await.map(|(_, connection)| connection)
    }

    /// Returns a client of the present primary. The connection that confirmed its role is closed,
    /// because a connection for messages could not have asked.
    pub(super) async fn primary(&self, limits: TimeLimits) -> RedisResult<Client> {
        self.find(limits).await.map(|(client, _)| client)
    }

    /// Finds the primary that most Sentinels name, and connects to it. All clients that reach most
    /// Sentinels find the same one, unless a failover comes in between.
    async fn find(&self, limits: TimeLimits) -> RedisResult<(Client, MultiplexedConnection)> {
        let finding = async {
            // 1. Ask all Sentinels at once, because one may hang. A majority that agrees decides, so
            //    that the others delay nothing. Otherwise, each has its time to answer.
            let certificates = self.certificates.current();
            let ask = |sentinel| self.ask(sentinel, &certificates, limits);
            let mut asked: FuturesUnordered<_> = self.sentinels.iter().map(ask).collect();
            let (mut reports, mut failed) = (Reports::new(self.sentinels.len()), Vec::new());
            while !reports.agree()
                && let Some(answer) = asked.next().await
            {
                match answer {
                    Ok(report) => reports.add(report),
                    Err(failure) => failed.push(failure),
                }
            }
            // Beside a majority, it means nothing that a Sentinel is down.
            if reports.agree() {
                failed.clear();
            }
            // 2. Connect to the server that most of them name. Sentinels learn of a failover one after
            //    the other, so another one may follow. But if a majority has decided, and its server
            //    does not answer, a lock elsewhere could be a second one.
            for address in reports.candidates() {
                match self.connect_to(address, &certificates, limits).await {
                    Ok(found) => return Ok(found),
                    Err(error) => {
                        let is_no_primary = is_not_found(&error);
                        failed.push((Step::Connect, error));
                        if reports.agree() && !is_no_primary {
                            break;
                        }
                    }
                }
            }
            // 3. Otherwise, say why.
            if failed.iter().all(|(step, _)| *step != Step::Connect) {
                let leaving = reports.leaving();
                failed.extend(leaving.map(|report| (Step::Ask, not_found(report.to_string()))));
            }
            Err(most_telling(failed))
        };
        within(limits.finding(), finding).await
    }

    async fn ask(
        &self,
        info: &ConnectionInfo,
        certificates: &UsedCertificates,
        limits: TimeLimits,
    ) -> Result<Report, Failed> {
        let sentinel = info.addr().to_string();
        let asking = async {
            let client = certificates.client(info.clone())?;
            let settings = limits.settings();
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&settings).await?;
            redis::cmd("SENTINEL").arg("MASTERS").query_async(&mut connection).await
        };
        let known: Vec<HashMap<String, String>> =
            asking.await.map_err(|error| of_sentinel(&sentinel, error))?;
        let report = known.into_iter().find_map(|mut fields| {
            fields.get("name").filter(|name| **name == self.primary)?;
            let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok());
            let port = fields.get("port")?.parse().ok()?;
            Some(Report {
                sentinel: sentinel.clone(),
                address: (fields.remove("ip")?, port),
                epoch: epoch.unwrap_or_default(),
                flags: fields.remove("flags").unwrap_or_default(),
            })
        });
        let unknown = || format!("the Sentinel at {sentinel} knows no primary `{}`", self.primary);
        report.ok_or_else(|| (Step::Ask, not_found(unknown())))
    }

    /// Connects to a server that Sentinels name. They may not know yet that it was replaced.
    async fn connect_to(
        &self,
        (host, port): (String, u16),
        certificates: &UsedCertificates,
        limits: TimeLimits,
    ) -> RedisResult<(Client, MultiplexedConnection)> {
        let address = address_beside(self.sentinels[0].addr(), host, port);
        let named = address.to_string();
        let connecting = async {
            let client = certificates.client(connection_info(address, &self.redis)?)?;
            let settings = limits.settings();
            let mut connection =
                client.get_multiplexed_async_connection_with_config(&settings).await?;
            let role = redis::cmd("ROLE").query_async(&mut connection).await?;
            Ok((client, connection, role))
        };
        match connecting.await {
            Ok((client, connection, Role::Primary { .. })) => Ok((client, connection)),
            Ok(_) => Err(not_found(format!("they name {named}, which is not the primary"))),
            Err(error) => Err(without_answer(&named, error)),
        }
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "primary {} of the Sentinels {}", self.primary, self.hosts)
    }
}
