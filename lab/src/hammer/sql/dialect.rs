//! The SQL that differs between the databases.
//!
//! All statements consist of numbers and of the hammer's own names, so they are built as text.

use fence::{ResourceName, mariadb, postgres, sqlite};

use crate::hammer::database::Offer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Postgres,
    MariaDb,
    Sqlite,
}

impl Dialect {
    pub(super) fn from_url(url: &str) -> Self {
        match url.split(':').next() {
            Some("sqlite") => Self::Sqlite,
            Some("mariadb" | "mysql") => Self::MariaDb,
            _ => Self::Postgres,
        }
    }

    pub(super) fn isolation_levels(self) -> &'static [&'static str] {
        match self {
            Self::Postgres | Self::MariaDb => {
                &["read committed", "repeatable read", "serializable"]
            }
            Self::Sqlite => &["serializable"],
        }
    }

    /// The first statement on a connection.
    pub(super) fn configure(self, isolation: &str) -> String {
        match self {
            Self::Postgres => {
                format!("set session characteristics as transaction isolation level {isolation}")
            }
            Self::MariaDb => format!("set session transaction isolation level {isolation}"),
            Self::Sqlite => "pragma recursive_triggers = on".to_owned(),
        }
    }

    pub(super) fn begin(self) -> &'static str {
        match self {
            Self::Postgres | Self::MariaDb => "begin",
            Self::Sqlite => "begin immediate",
        }
    }

    /// Removes the fence of one of the hammer's resources, if there is one.
    pub(super) fn remove_fence(self, resource: &ResourceName) -> String {
        match self {
            // The fence rejects a deletion unless the setting allows it.
            Self::Postgres => format!(
                "do $$ begin
                     perform set_config('fence.remove', 'on', true);
                     delete from fence.fence where resource = '{resource}';
                 end $$"
            ),
            Self::MariaDb => format!("delete from fence.resources where resource = '{resource}'"),
            // It removes the fences of resources that begin with this name, too.
            Self::Sqlite => format!("insert into fence_forget values ('{resource}')"),
        }
    }

    /// PostgreSQL's functions without a result are called in a block, because sqlx's driver for any
    /// database does not know their type.
    pub(super) fn protect(self, table: &str) -> String {
        match self {
            Self::Postgres => {
                format!("do $$ begin perform fence.protect('{table}', 'resource'); end $$")
            }
            Self::MariaDb => format!(
                "create trigger {table}_update after update on {table}
                 for each row call fence.check_both('{table}', old.resource, new.resource)"
            ),
            Self::Sqlite => format!(
                "create trigger {table}_update after update on {table} begin
                     insert into fence_require values ('{table}', old.resource), ('{table}', new.resource);
                 end"
            ),
        }
    }

    /// Removes the part of the protection that would outlast the table.
    pub(super) fn unprotect(self, table: &str) -> Option<String> {
        (self == Self::Postgres).then(|| {
            format!(
                "do $$ begin
                     perform fence.unprotect(to_regclass(protected)) from fence.status
                     where to_regclass(protected) = to_regclass('{table}');
                 end $$"
            )
        })
    }

    /// Claims, before reads of a protected table and writes to it.
    pub(super) fn claim(self, Offer { resource, fence }: &Offer) -> String {
        let offered = format!("'{resource}', {}, '{}'", fence.token, fence.holder.as_str());
        match self {
            Self::Postgres => format!("do $$ begin perform fence.claim({offered}); end $$"),
            Self::MariaDb => format!("call fence.claim({offered})"),
            Self::Sqlite => {
                format!("insert into fence_presented (resource, token, holder) values ({offered})")
            }
        }
    }

    /// The last statement before the commit of a transaction that has claimed.
    pub(super) fn before_commit(self) -> Option<&'static str> {
        (self == Self::Sqlite).then_some("delete from fence_presented")
    }

    pub(super) fn is_contention(self, error: &sqlx::Error) -> bool {
        match self {
            Self::Postgres => postgres::is_contention(error),
            Self::MariaDb => mariadb::is_contention(error),
            Self::Sqlite => sqlite::is_contention(error),
        }
    }
}
