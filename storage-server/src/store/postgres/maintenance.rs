//! An operator's changes of a PostgreSQL database.

use std::ops::Range;

use async_trait::async_trait;
use fence::{Fence, ResourceName, Token};
use postgres_primary::Newest;
use sqlx::{Connection, PgConnection};

use super::{open_session, primary::find_primary, session::session_hosts};
use crate::store::{
    error::OpenError,
    maintenance::{Counted, Maintenance, StoredRow, Unreadable},
    schema::Migrations,
};

/// A session for an operator's commands.
pub(in crate::store) struct PostgresMaintenance(PgConnection);

impl PostgresMaintenance {
    pub(in crate::store) async fn connect(url: &str) -> Result<Self, OpenError> {
        let hosts = session_hosts(url)?.application_name("storage-server maintenance");
        let primary = find_primary(&hosts, &Newest::default()).await?;
        Ok(Self(open_session(hosts.options(primary), Migrations::Check).await?))
    }
}

#[async_trait]
impl Maintenance for PostgresMaintenance {
    async fn stored(&mut self, resource: &ResourceName) -> Result<Option<StoredRow>, sqlx::Error> {
        sqlx::query_as(
            r#"
            select token, convert_to(holder, 'UTF8') as holder, version,
                length(bytes)::bigint as size,
                value_token, convert_to(value_holder, 'UTF8') as value_holder, answers
            from storage.resource
            where resource = $1
            "#,
        )
        .bind(resource.as_str())
        .fetch_optional(&mut self.0)
        .await
    }

    async fn set_fence(
        &mut self,
        resource: &ResourceName,
        before: Option<&StoredRow>,
        fence: &Fence,
        forget: Unreadable,
    ) -> Result<bool, sqlx::Error> {
        let set = match before {
            None => sqlx::query(
                r#"
                insert into storage.resource (resource, token, holder, version)
                values ($1, $2, $3, 0)
                on conflict (resource) do nothing
                "#,
            )
            .bind(resource.as_str())
            .bind(fence.token.as_i64())
            .bind(fence.holder.as_str()),
            Some(before) => sqlx::query(
                r#"
                update storage.resource
                set token = $2, holder = $3,
                    value_token = case when $6 then null else value_token end,
                    value_holder = case when $6 and bytes is not null then '' else value_holder end,
                    answers = case when $7 then null else answers end
                where resource = $1
                    and token is not distinct from $4 and convert_to(holder, 'UTF8') = $5
                "#,
            )
            .bind(resource.as_str())
            .bind(fence.token.as_i64())
            .bind(fence.holder.as_str())
            .bind(before.token)
            .bind(&before.holder)
            .bind(forget.value_fence)
            .bind(forget.answers),
        };
        Ok(set.execute(&mut self.0).await?.rows_affected() == 1)
    }

    async fn common_fence(&mut self) -> Result<Option<Token>, sqlx::Error> {
        let token: Option<i64> =
            sqlx::query_scalar("select token from storage.common_fence where id = 1")
                .fetch_optional(&mut self.0)
                .await?;
        let token = token.map(Token::try_from).transpose();
        token.map_err(|error| sqlx::Error::Decode(Box::new(error)))
    }

    async fn set_common_fence(
        &mut self,
        before: Option<Token>,
        common_fence: Token,
    ) -> Result<bool, sqlx::Error> {
        // Every change of a resource compares the common fence, as of when it began. This lock waits for all
        // that have begun, and holds up the next ones. So none is made under the old common fence later.
        let mut transaction = self.0.begin().await?;
        let lock =
            "set local lock_timeout = '2s'; lock storage.resource in share row exclusive mode";
        sqlx::raw_sql(lock).execute(&mut *transaction).await?;
        let set = set_common_fence(&mut transaction, before, common_fence).await?;
        transaction.commit().await?;
        Ok(set)
    }

    async fn count(&mut self, names: &Range<String>) -> Result<Counted, sqlx::Error> {
        sqlx::query_as(
            r#"
            select count(*) as count, min(resource) as first, max(resource) as last
            from storage.resource
            where resource >= $1 and resource < $2
            "#,
        )
        .bind(&names.start)
        .bind(&names.end)
        .fetch_one(&mut self.0)
        .await
    }

    async fn delete(&mut self, names: &Range<String>, limit: i64) -> Result<u64, sqlx::Error> {
        let deleted = sqlx::query(
            r#"
            delete from storage.resource
            where resource in (
                select resource
                from storage.resource
                where resource >= $1 and resource < $2
                order by resource
                limit $3
                for update
            )
            "#,
        )
        .bind(&names.start)
        .bind(&names.end)
        .bind(limit)
        .execute(&mut self.0)
        .await?;
        Ok(deleted.rows_affected())
    }
}

/// Sets the common fence if it still is `before`.
async fn set_common_fence(
    connection: &mut PgConnection,
    before: Option<Token>,
    common_fence: Token,
) -> Result<bool, sqlx::Error> {
    let set = sqlx::query(
        r#"
        insert into storage.common_fence as f (id, token)
        values (1, $1)
        on conflict (id) do update set token = excluded.token where f.token is not distinct from $2
        "#,
    )
    .bind(common_fence.as_i64())
    .bind(before.map(Token::as_i64))
    .execute(connection)
    .await?;
    Ok(set.rows_affected() == 1)
}
