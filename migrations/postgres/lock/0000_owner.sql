-- The owner of the locks. This file comes first, also before an upgrade, and may be applied again.
--
-- The functions of the schema `fenced_lock` run with the installer's rights. So no other role may own
-- the schema or anything in it, or create objects there.

-- Refuses a schema, or an object in it, of another role. `lock_client::postgres::install` executes
-- this statement by itself first, because sqlx writes its record into the schema before it applies
-- files.
do $$
declare
    path pg_catalog.text = pg_catalog.current_setting('search_path');
    other pg_catalog.record;
begin
    -- Nothing on the installer's search_path can replace what this block uses.
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    select * into other
    from (
        select 1, 'the schema fenced_lock', oid, nspowner from pg_namespace
        union all
        select 2, oid::regclass::text, relnamespace, relowner from pg_class
        union all
        select 3, oid::regprocedure::text, pronamespace, proowner from pg_proc
        union all
        select 4, oid::regtype::text, typnamespace, typowner from pg_type
        union all
        select 5, oid::regoperator::text, oprnamespace, oprowner from pg_operator
        union all
        select 6, collname, collnamespace, collowner from pg_collation
    ) as object (place, name, schema, owner)
    where schema = to_regnamespace('fenced_lock') and owner <> current_user::regrole
    order by place limit 1;
    if found then
        raise exception using
            errcode = 'insufficient_privilege',
            message = format('%s belongs to %s', other.name, other.owner::regrole),
            hint = 'Install the locks as the role that owns the schema, or remove what is not its '
                'own: their functions run with its rights.';
    end if;
    perform set_config('search_path', path, true);
end
$$;

-- Creates the schema. Nobody else may create objects in it, whatever the default privileges say. The
-- right to use it is the administrator's to grant.
do $$
declare
    path pg_catalog.text = pg_catalog.current_setting('search_path');
    is_new pg_catalog.bool;
    granted pg_catalog.record;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    is_new = to_regclass('fenced_lock.lock') is null;
    if to_regnamespace('fenced_lock') is null then
        create schema fenced_lock;
    end if;
    for granted in
        select distinct acl.grantee
        from pg_namespace n cross join lateral aclexplode(n.nspacl) as acl
        where n.nspname = 'fenced_lock' and acl.grantee <> n.nspowner
    loop
        execute format(
            'revoke %s on schema fenced_lock from %s',
            case when is_new then 'all' else 'create' end,
            case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end);
    end loop;
    perform set_config('search_path', path, true);
end
$$;
