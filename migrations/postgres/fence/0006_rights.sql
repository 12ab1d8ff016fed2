-- The fence in PostgreSQL: the rights of other roles, and its version. Apply all other files first.

-- New objects get these rights, whatever the default privileges are. The rights on the others are the administrator's,
-- but nobody else may create in the schema. `version` is created last: where it is missing, all objects are new.
do $$
declare
    known constant oid[] = case when pg_catalog.to_regprocedure('fence.version()') is null then '{}'
        else nullif(pg_catalog.current_setting('fence.known_objects', true), '') end;
    path constant text = pg_catalog.current_setting('search_path');
    object record;
    others text;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    create or replace function fence.version() returns integer language sql immutable as 'select 6';
    -- A role that may use the schema may call its functions: those with SECURITY DEFINER check their arguments. The
    -- policies of the two tables limit who reads and writes which rows.
    for object in
        select name, acl, owner, granted, (oid <> all (known)) is true as is_new
        from (
            select oid, format('table %s', oid::regclass), relacl, relowner, case relname
                when 'protected' then 'select, insert, update, delete' when 'reports' then 'select, insert, delete' end
            from pg_class where relnamespace = 'fence'::regnamespace and relkind in ('r', 'v')
            union all
            select oid, format('function %s', oid::regprocedure), proacl, proowner, 'execute'
            from pg_proc where pronamespace = 'fence'::regnamespace
            union all
            select null, 'schema fence', nspacl, nspowner, null from pg_namespace where nspname = 'fence'
        ) as object (oid, name, acl, owner, granted)
    loop
        select string_agg(distinct case grantee when 0 then 'public' else grantee::regrole::text end, ', ') into others
        from aclexplode(object.acl) where grantee <> object.owner and (object.is_new or privilege_type = 'CREATE');
        if others is not null then
            execute format('revoke %s on %s from %s cascade',
                case when object.is_new then 'all' else 'create' end, object.name, others);
        end if;
        if object.is_new and object.granted is not null then
            execute format('grant %s on %s to public', object.granted, object.name);
        end if;
    end loop;
    perform set_config('search_path', path, true);
end
$$;
