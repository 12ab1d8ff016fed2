-- The owner of the fence. This file comes first, also before an upgrade, and may be applied again.
--
-- The fence's functions run with the installer's rights. So no other role may own the schema or
-- anything in it, or create objects there.
--
-- This file also keeps the grants on the fence's tables, views and functions. 0001_fence.sql revokes
-- them, and 0011_grants.sql grants them again.

-- Refuses a schema, or an object in it, of another role. `fence::postgres::install` executes this
-- statement by itself first, because sqlx writes its record into the schema before it applies files.
do $$
declare
    path pg_catalog.text = pg_catalog.current_setting('search_path');
    other pg_catalog.record;
begin
    -- Nothing on the installer's search_path can replace what this block uses.
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    select * into other
    from (
        select 1, 'the schema fence', oid, nspowner from pg_namespace
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
    where schema = to_regnamespace('fence') and owner <> current_user::regrole
    order by place limit 1;
    if found then
        raise exception using
            errcode = 'insufficient_privilege',
            message = format('%s belongs to %s', other.name, other.owner::regrole),
            hint = 'Install the fence as the role that owns the schema, or remove what is not its '
                'own: the fence''s functions run with its rights.';
    end if;
    perform set_config('search_path', path, true);
end
$$;

do $$
declare
    path pg_catalog.text = pg_catalog.current_setting('search_path');
    is_new pg_catalog.bool;
    granted pg_catalog.record;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

    -- 1. Nobody else may create objects in the schema. Default privileges may have granted it. Once
    -- the fence is installed, the right to use it is the administrator's to grant.
    is_new = to_regclass('fence.fence') is null;
    if to_regnamespace('fence') is null then
        create schema fence;
    end if;
    for granted in
        select distinct acl.grantee
        from pg_namespace n cross join lateral aclexplode(n.nspacl) as acl
        where n.nspname = 'fence' and acl.grantee <> n.nspowner
    loop
        execute format(
            'revoke %s on schema fence from %s',
            case when is_new then 'all' else 'create' end,
            case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end);
    end loop;

    -- 2. Keep the grants, but not those that default privileges made just now.
    create table if not exists fence.kept_grants (statement text not null);
    for granted in
        select distinct acl.grantee
        from pg_class c cross join lateral aclexplode(c.relacl) as acl
        where c.oid = 'fence.kept_grants'::regclass and acl.grantee <> c.relowner
    loop
        execute format(
            'revoke all on fence.kept_grants from %s',
            case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end);
    end loop;
    insert into fence.kept_grants
    select format(
        'grant %s%s on %s to %s%s', acl.privilege_type, object.of_columns, object.name,
        case acl.grantee when 0 then 'public' else acl.grantee::regrole::text end,
        case when acl.is_grantable then ' with grant option' else '' end)
    from (
        select format(
                '%s %s', case relkind when 'S' then 'sequence' else 'table' end, oid::regclass),
            '', relacl, relowner
        from pg_class where relnamespace = 'fence'::regnamespace and relname <> 'status_kept'
        union all
        select format('table %s', c.oid::regclass), format(' (%I)', attname), attacl, relowner
        from pg_class c join pg_attribute on attrelid = c.oid where relnamespace = 'fence'::regnamespace
        union all
        select format('function %s', oid::regprocedure), '', proacl, proowner
        from pg_proc where pronamespace = 'fence'::regnamespace
    ) as object (name, of_columns, acl, owner)
    cross join lateral aclexplode(object.acl) as acl
    where acl.grantee <> object.owner and not is_new
    union all
    select format('revoke execute on function %s from public', oid::regprocedure)
    from pg_proc
    where pronamespace = 'fence'::regnamespace and proacl is not null and not is_new
        and not exists (select from aclexplode(proacl) as acl where acl.grantee = 0);

    -- 3. Make way for the view that 0001_fence.sql creates. It has fewer columns than the one of
    -- 0009_status.sql, and other views may depend on that one.
    if exists (
        select from pg_attribute
        where attrelid = to_regclass('fence.status') and attname = 'mode'
    ) then
        alter view fence.status rename to status_kept;
    end if;

    perform set_config('search_path', path, true);
end
$$;
