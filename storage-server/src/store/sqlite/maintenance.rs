//! An operator's changes of an SQLite file.

use std::ops::Range;

use async_trait::async_trait;
use fence::{Fence, ResourceName, Token};
use sqlx::{ConnectOptions, SqliteConnection};

use super::{integrity::require_whole_file, options, prepare_schema, sync_log};
use crate::store::{
    error::OpenError,
    maintenance::{Counted, Maintenance, StoredRow, Unreadable},
    schema::Migrations,
};

/// A connection for an operator's commands.
pub(in crate::store) struct SqliteMaintenance(SqliteConnection);

impl SqliteMaintenance {
    pub(in crate::store) async fn open(url: &str) -> Result<Self, OpenError> {
        let options = options(url)?;
        require_whole_file(options.get_filename(), url, false).await?;
        let connected = options.connect().await;
        let mut connection =
            connected.map_err(|source| OpenError::Connect { database: url.to_owned(), source })?;
        prepare_schema(Migrations::Check, &mut connection, url).await?;
        sync_log(&mut connection, url).await?;
        Ok(Self(connection))
    }
}

#[async_trait]
impl Maintenance for SqliteMaintenance {
    async fn stored(&mut self, resource: &ResourceName) -> Result<Option<StoredRow>, sqlx::Error> {
        sqlx::query_as(
            r#"
            select token, cast(holder as blob) as holder, version,
                coalesce(length(bytes), large_bytes) as size,
                value_token, cast(value_holder as blob) as value_holder, answers
            from storage_resource
            where resource = ?1
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
                insert into storage_resource (resource, token, holder, version)
                values (?1, ?2, ?3, 0)
                on conflict (resource) do nothing
                "#,
            )
            .bind(resource.as_str())
            .bind(fence.token.as_i64())
            .bind(fence.holder.as_str()),
            Some(before) => sqlx::query(
                r#"
                update storage_resource
                set token = ?2, holder = ?3,
                    value_token = case when ?6 then null else value_token end,
                    value_holder = case
                        when ?6 and (bytes is not null or large_bytes is not null) then ''
                        else value_holder end,
                    answers = case when ?7 then null else answers end
                where resource = ?1
                    and token is ?4 and cast(holder as blob) = ?5
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
        common_fence(&mut self.0).await
    }

    async fn set_common_fence(
        &mut self,
        before: Option<Token>,
        common_fence: Token,
    ) -> Result<bool, sqlx::Error> {
        set_common_fence(&mut self.0, before, common_fence).await
    }

    async fn count(&mut self, names: &Range<String>) -> Result<Counted, sqlx::Error> {
        sqlx::query_as(
            r#"
            select count(*) as count, min(resource) as first, max(resource) as last
            from storage_resource
            where resource >= ?1 and resource < ?2
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
            delete from storage_resource
            where resource in (
                select resource
                from storage_resource
                where resource >= ?1 and resource < ?2
                order by resource
                limit ?3
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

/// Loads the common fence.
pub(crate) async fn common_fence(
    connection: &mut SqliteConnection,
) -> Result<Option<Token>, sqlx::Error> {
    let token: Option<i64> =
        sqlx::query_scalar("select token from storage_common_fence where id = 1")
            .fetch_optional(connection)
            .await?;
    let token = token.map(Token::try_from).transpose();
    token.map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// Sets the common fence if it still is `before`.
pub(crate) async fn set_common_fence(
    connection: &mut SqliteConnection,
    before: Option<Token>,
    common_fence: Token,
) -> Result<bool, sqlx::Error> {
    let set = sqlx::query(
        r#"
        insert into storage_common_fence as f (id, token)
        values (1, ?1)
        on conflict (id) do update set token = excluded.token where f.token is ?2
        "#,
    )
    .bind(common_fence.as_i64())
    .bind(before.map(Token::as_i64))
    .execute(connection)
    .await?;
    Ok(set.rows_affected() == 1)
}
