-- The fence in PostgreSQL: the rights of other roles, and its version. Apply all other files first.

do $$
declare
    path constant text = pg_catalog.current_setting('search_path');
    -- Without the version, no installation was completed.
    is_first constant boolean = pg_catalog.to_regprocedure('fence.version()') is null;
    -- The objects that 0001_schema.sql has found, for this session.
    known text[];
    object record;
    other text;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    known = nullif(current_setting('fence.known_objects', true), '');
    if known is null then
        raise exception using errcode = 'object_not_in_prerequisite_state',
            message = 'the files of the fence must be applied over one connection';
    end if;
    -- 1. Nobody else may own a table or function of the schema, or have a trigger on a table: they would run with the
    -- installer's rights. A function that another role created after 0001_schema.sql looked was replaced by ours, and
    -- still belongs to that role. The lock on the tables waits for triggers that are not committed yet. Clients may
    -- write meanwhile.
    lock table fence.fence, fence.protected, fence.reports in share update exclusive mode;
    select found_object.message into other
    from (
        select format('%s belongs to %s', oid::regclass, relowner::regrole) from pg_class
        where relnamespace = 'fence'::regnamespace and relowner <> quote_ident(current_user)::regrole
        union all
        select format('%s belongs to %s', oid::regprocedure, proowner::regrole) from pg_proc
        where pronamespace = 'fence'::regnamespace and proowner <> quote_ident(current_user)::regrole
        union all
        select format('the trigger %s on %s is not of the fence', t.tgname, c.oid::regclass)
        from pg_class c join pg_trigger t on t.tgrelid = c.oid
        where c.relnamespace = 'fence'::regnamespace and not t.tgisinternal and not (
            c.relname = 'fence' and t.tgname = 'reject_removal' and t.tgfoid = 'fence.reject_removal()'::regprocedure
            and t.tgtype = 42 /* before delete or truncate, for each statement */ and t.tgqual is null)
    ) as found_object (message) limit 1;
    if found then
        raise exception using errcode = 'object_not_in_prerequisite_state', message = other,
            hint = 'Drop it, and apply the files again.';
    end if;
    create or replace function fence.version() returns integer language sql immutable as 'select 7';

    -- 2. Nor may anybody create them from now on.
    for other in
        select format('revoke %s from %s cascade', revoked, grantee)
        from (
            select 'create on schema fence', nspacl, nspowner, 'CREATE' from pg_namespace where nspname = 'fence'
            union all
            select format('trigger on %s', oid::regclass), relacl, relowner, 'TRIGGER'
            from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'r'
        ) as object (revoked, acl, owner, privilege)
        cross join lateral fence.grantees(acl, owner, privilege) as grantee
    loop
        execute other;
    end loop;

    -- 3. Set the rights, whatever the default privileges are. The column `granted` has those of public; null is none.
    -- The first installation sets the rights on the schema and all objects, a later one only those on new objects:
    -- rights on known objects are the administrator's. Without USAGE on the schema, which only the administrator
    -- grants, public can use none of it. The policies of two tables limit who reads and writes which rows.
    for object in
        select * from (
            select format('%s.%s', tableoid, oid) as id, format('table %s', oid::regclass) as name, relacl as acl,
                relowner as owner, case relname when 'protected' then 'select, insert, update, delete'
                    when 'reports' then 'select, insert, delete' end as granted
            from pg_class where relnamespace = 'fence'::regnamespace and relkind in ('r', 'v')
            union all
            select format('%s.%s', tableoid, oid), format('function %s', oid::regprocedure), proacl, proowner, 'execute'
            from pg_proc where pronamespace = 'fence'::regnamespace
            union all
            select null, 'schema fence', nspacl, nspowner, null from pg_namespace where nspname = 'fence'
        ) as object
        where is_first or (id is not null and id <> all (known))
    loop
        perform fence.revoke_all(object.name, object.acl, object.owner);
        if object.granted is not null then
            execute format('grant %s on %s to public', object.granted, object.name);
        end if;
    end loop;
    perform set_config('search_path', path, true);
end
$$;
