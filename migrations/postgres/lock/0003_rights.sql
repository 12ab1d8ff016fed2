-- The locks in PostgreSQL: the rights of other roles, and the version. Apply all other files first.

-- `version` is created last: where it is missing, this is the first application. That one sets all rights, whatever the
-- default privileges are. Afterwards the rights are the administrator's, but nobody else may create in the schema.
do $$
declare
    is_first constant boolean = pg_catalog.to_regprocedure('fenced_lock.version()') is null;
    path constant text = pg_catalog.current_setting('search_path');
    granted record;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    create or replace function fenced_lock.version() returns integer language sql immutable as 'select 7';
    for granted in
        select distinct object.name, acl.grantee, case when is_first then 'all' else 'create' end as privileges
        from (
            select 'schema fenced_lock' as name, nspacl as acl, nspowner as owner
            from pg_namespace where nspname = 'fenced_lock'
            union all
            select format('%s %s', case relkind when 'S' then 'sequence' else 'table' end, oid::regclass), relacl,
                relowner
            from pg_class where relnamespace = 'fenced_lock'::regnamespace and is_first
            union all
            select format('function %s', oid::regprocedure), proacl, proowner
            from pg_proc where pronamespace = 'fenced_lock'::regnamespace and is_first
        ) as object
        cross join lateral aclexplode(object.acl) as acl
        where acl.grantee <> object.owner and (is_first or acl.privilege_type = 'CREATE')
    loop
        execute format(
            'revoke %s on %s from %s cascade', granted.privileges, granted.name,
            case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end);
    end loop;
    -- A role that may use the schema may call its functions. Only those that clients call run with the installer's
    -- rights.
    if is_first then
        grant execute on all functions in schema fenced_lock to public;
    end if;
    perform set_config('search_path', path, true);
end
$$;
