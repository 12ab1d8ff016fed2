-- What a transaction has claimed last, so that not every row needs a look at its fence. May be applied
-- again.
--
-- The resource is remembered in a setting, which ends with the transaction, and which a rollback to
-- a savepoint undoes together with the claim. Anybody may set and read settings. But the name of
-- this one contains a secret, and PostgreSQL never lists the names of such settings.

-- Revokes all rights of other roles on a relation, which default privileges may have granted.
create or replace function fence.revoke_from_others(relation regclass)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    other oid;
begin
    for other in
        select distinct acl.grantee
        from pg_class c cross join lateral aclexplode(c.relacl) as acl
        where c.oid = relation and acl.grantee <> c.relowner
    loop
        execute format(
            'revoke all on %s from %s', relation,
            case other when 0 then 'public' else other::regrole::text end);
    end loop;
end
$$;

-- The secret, in a sequence that only the fence's functions can read.
do $$
begin
    if pg_catalog.to_regclass('fence.secret') is null then
        create sequence fence.secret;
        perform fence.revoke_from_others('fence.secret'::pg_catalog.regclass);
        perform pg_catalog.setval('fence.secret'::pg_catalog.regclass, (
            'x' operator(pg_catalog.||)
            -- Of a random UUID, the first 32 bits are random.
            pg_catalog."left"(pg_catalog.gen_random_uuid()::pg_catalog.text, 8)
            operator(pg_catalog.||)
            pg_catalog."left"(pg_catalog.gen_random_uuid()::pg_catalog.text, 8)
        )::pg_catalog.bit(64)::pg_catalog.int8 operator(pg_catalog.&) 9223372036854775807);
    end if;
end
$$;

-- The name of the setting. It never changes, so PostgreSQL evaluates it once in a session, when it
-- plans the functions that use it, which run with the rights of the installer. Nobody else has the
-- right to read the secret.
create or replace function fence.name_of_passed()
returns text
language plpgsql immutable
as $$
begin
    return 'fence.passed_' operator(pg_catalog.||)
        pg_catalog.pg_sequence_last_value('fence.secret'::pg_catalog.regclass)::pg_catalog.text;
end
$$;
