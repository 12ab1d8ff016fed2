//! Whose the schema `storage` is, and the tables in it.
//!
//! A server writes with its own rights, and a trigger runs with those of its caller. So a role that may
//! create a schema could wait for an administrator, and become one: by a schema `storage` of its own with
//! the server's tables in it, or by a trigger on the server's tables.

use sqlx::{Executor, PgConnection, Row};

/// Takes the lock under which one server at a time creates what is missing.
const LOCK: &str = "select pg_advisory_xact_lock(hashtext('storage'))";

/// Objects that belong neither to this role, nor to a superuser, nor to the owner of the database.
const FOREIGN: &str = r#"
    with trusted (owner) as (
        select oid from pg_roles where rolsuper or rolname = current_user
        union
        select datdba from pg_database where datname = current_database()
    ), object (title, owner) as (
        select 'the schema storage', nspowner from pg_namespace where nspname = 'storage'
        union all
        select 'the table ' || oid::regclass, relowner
        from pg_class where relnamespace = to_regnamespace('storage')
        union all
        select 'the function ' || oid::regprocedure, proowner
        from pg_proc where pronamespace = to_regnamespace('storage')
        union all
        select format('the function %s of the trigger %I on %s',
            p.oid::regprocedure, t.tgname, t.tgrelid::regclass), p.proowner
        from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
        where c.relnamespace = to_regnamespace('storage') and not t.tgisinternal
    )
    select format('%s belongs to %I', title, pg_get_userbyid(owner))
    from object
    where owner not in (select owner from trusted)
    limit 1
"#;

/// Takes all rights on the schema and its tables from other roles: default privileges have granted them.
const REVOKE: &str = r#"
    do $$
    declare
        granted record;
    begin
        for granted in
            select distinct object.name, acl.grantee
            from (
                select 'schema storage' as name, nspacl as acl, nspowner as owner
                from pg_namespace where nspname = 'storage'
                union all
                select format('table %s', oid::regclass), relacl, relowner
                from pg_class where relnamespace = to_regnamespace('storage')
            ) as object
            cross join lateral aclexplode(object.acl) as acl
            where acl.grantee <> object.owner
        loop
            execute format('revoke all on %s from %s cascade', granted.name,
                case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end);
        end loop;
    end
    $$
"#;

/// Returns what belongs to a role that could use the rights of this one, if something does. Names resolve
/// in the catalog alone, until the transaction ends.
pub(super) async fn foreign_object(
    transaction: &mut PgConnection,
) -> Result<Option<String>, sqlx::Error> {
    transaction.execute("set local search_path = pg_catalog, pg_temp").await?;
    let found = transaction.fetch_optional(sqlx::raw_sql(FOREIGN)).await?;
    let Some(belongs) = found.map(|row| row.try_get::<String, _>(0)).transpose()? else {
        return Ok(None);
    };
    Ok(Some(format!(
        "{belongs}, who is neither this role, nor a superuser, nor the owner of the database, and could \
         use the rights of this role. Drop what is not the server's. If it is, give it to the owner of \
         the database"
    )))
}

/// Creates the schema if it is missing. No other server does so until the transaction ends.
pub(super) async fn create(transaction: &mut PgConnection) -> Result<(), sqlx::Error> {
    transaction.execute(LOCK).await?;
    transaction.execute("create schema if not exists storage").await.map(drop)
}

/// Leaves rights on what was created to its owner alone. All others need a grant.
pub(super) async fn revoke_default_privileges(
    transaction: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    transaction.execute(sqlx::raw_sql(REVOKE)).await.map(drop)
}
