-- The rights of other roles, whatever the default privileges say. May be applied again, after all
-- other files.

do $$
declare
    path pg_catalog.text = pg_catalog.current_setting('search_path');
    relation pg_catalog.regclass;
    granted pg_catalog.record;
    statement pg_catalog.text;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

    -- 1. On tables and views, and by name on functions, nobody has any right.
    for relation in
        select oid from pg_class
        where relnamespace = 'fence'::regnamespace and relkind in ('r', 'v', 'S')
    loop
        perform fence.revoke_from_others(relation);
    end loop;
    for granted in
        select distinct p.oid::regprocedure as function, acl.grantee
        from pg_proc p cross join lateral aclexplode(p.proacl) as acl
        where p.pronamespace = 'fence'::regnamespace and acl.grantee not in (0, p.proowner)
    loop
        execute format(
            'revoke all on function %s from %s', granted.function, granted.grantee::regrole);
    end loop;
    -- 2. Everybody who may use the schema may call its functions: those that may do more than their
    -- caller check what they are asked. The policy of the registry limits who writes what.
    grant execute on all functions in schema fence to public;
    grant select, insert, update, delete on fence.protected to public;
    -- 3. What the administrator has granted and revoked since.
    for statement in select k.statement from fence.kept_grants k loop
        execute statement;
    end loop;
    drop table fence.kept_grants;

    perform set_config('search_path', path, true);
end
$$;
