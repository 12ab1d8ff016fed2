-- The fence in PostgreSQL, 13 or newer: the schema `fence`, its owner, and the table of fences.
--
-- Apply all files of this folder in the order of their names, in one transaction or each in one, over one connection:
--
--     cat *.sql | psql mydatabase --set ON_ERROR_STOP=1 --single-transaction
--
-- Applied again, they repair the fence's own objects. Fences, protected tables and grants stay as they are. But other
-- roles lose the rights CREATE on the schema and TRIGGER on its tables.
--
-- To see what stops a stale write, read the table `fence.fence` below, 0002_claim.sql and 0003_protect.sql. The blocks
-- "Installation" here, and 0006_rights.sql, stop other roles from getting the installer's rights. 0004_tables.sql and
-- 0005_status.sql reject no write.
--
-- A transaction claims its resources, each with the token of the lock that guards it: fence.claim('alice', 34, 'me').
-- Then it reads, and then it writes. A protected table rejects every write of a row whose resource was not claimed: see
-- 0003_protect.sql. The fence stops clients that are late, not clients that lie: a role that may use the schema may
-- claim any resource with any token.
--
-- migrations/README.md lists the errors, ZF001 to ZF006, and says what is guaranteed and what is not.

-- Installation, 1: the search_path. PostgreSQL searches pg_catalog first, unless the path names it later. Then types
-- and functions of other roles would be found before it, and the files are not applied. (Temporary objects are this
-- session's own.) Files that do more than create functions set the path, and restore it at their end.
do $$
begin
    if pg_catalog.array_to_string(pg_catalog.current_schemas(true), ',')
        operator(pg_catalog.!~) '^(pg_temp_[0-9]+,)?pg_catalog(,|$)'
    then
        raise exception using errcode = 'invalid_schema_name', message = 'pg_catalog must be first in the search_path';
    end if;
    perform pg_catalog.set_config('fence.search_path', pg_catalog.current_setting('search_path'), true);
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    -- One installer at a time.
    perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('fence'));
end
$$;

-- Installation, 2: what is there already. Nobody but the installer may own the schema, or a table or function in it,
-- because `claim` and `verify` run with their owner's rights and call the other functions. Another role may create a
-- function after this look. The files call it nowhere, and 0006_rights.sql looks again.
do $$
declare
    other record;
    found_version integer;
begin
    -- Without a transaction, the path set above has ended with its statement.
    if pg_catalog.current_setting('search_path') operator(pg_catalog.<>) 'pg_catalog, pg_temp' then
        raise exception using errcode = 'no_active_sql_transaction',
            message = 'the files of the fence must be applied in a transaction',
            hint = 'Call psql with --single-transaction.';
    end if;
    -- For 0006_rights.sql, which may run in another transaction: the ids of the objects that exist now. Their rights
    -- are not changed.
    perform set_config('fence.known_objects', (
        select coalesce(array_agg(format('%s.%s', classid, objid)), '{}')::text from pg_depend
        where refclassid = 'pg_namespace'::regclass and refobjid = to_regnamespace('fence')), false);
    create schema if not exists fence;

    select * into other
    from (
        select 1 as place, 'the schema fence' as name, oid as schema, nspowner as owner from pg_namespace
        union all
        select 2, oid::regclass::text, relnamespace, relowner from pg_class
        union all
        select 3, oid::regprocedure::text, pronamespace, proowner from pg_proc
    ) as object
    where schema = to_regnamespace('fence')
        and owner <> quote_ident(current_user)::regrole -- The cast takes an identifier, which is quoted if needed.
    order by place limit 1;
    if found then
        raise exception using errcode = 'insufficient_privilege',
            message = format('%s belongs to %s', other.name, other.owner::regrole),
            hint = 'Install the fence as the owner of the schema, or remove what is not its own.';
    end if;

    -- The first build had no version(), but require().
    if to_regprocedure('fence.version()') is not null then
        execute 'select fence.version()' into found_version;
    elsif to_regprocedure('fence.require(text)') is not null then
        found_version = 1;
    end if;
    -- It is null if nothing was installed, or an installation did not finish.
    if found_version is not null and found_version <> 7 then
        raise exception using errcode = 'object_not_in_prerequisite_state',
            message = format('the schema fence is of another build: its version is %s, not 7', found_version),
            hint = 'migrations/README.md, "Applying the files", says how to carry the fences over.';
    end if;
end
$$;

-- The fences. Only the installer has rights on this table, unless the administrator grants them. The fence's functions
-- check every value. The fillfactor leaves space in each page, so that an update touches no index.
create table if not exists fence.fence (
    resource text collate "C" not null,
    token bigint not null,
    holder text collate "C" not null,
    -- The transaction that claimed the resource last.
    claimed_by xid8 not null,
    constraint fence_pkey primary key (resource)
) with (fillfactor = 50);

-- The name of a table, in one form under all settings of the session: public.accounts. This helper and the next two
-- stop no write.
create or replace function fence.name_of(relation oid)
returns text language sql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
    select format('%I.%I', n.nspname, c.relname)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = relation
$$;

-- The roles other than the owner to which an object grants this privilege, or any if it is null.
create or replace function fence.grantees(acl aclitem[], owner oid, privilege text)
returns setof text language sql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
    select distinct case grantee when 0 then 'public' else grantee::regrole::text end
    from aclexplode(acl) where grantee <> owner and privilege_type = coalesce(privilege, privilege_type)
$$;

-- Takes all rights on a schema, table or function from all roles but its owner.
create or replace function fence.revoke_all(object text, acl aclitem[], owner oid)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    -- Public is always named: without an ACL, a function grants EXECUTE to it.
    execute format('revoke all on %s from %s cascade', object, concat_ws(
        ', ', 'public', (select string_agg(role, ', ') from fence.grantees(acl, owner, null::text) as role)));
end
$$;

-- Rejects the removal of fences together with other data, as by a test that empties all tables. It stops accidents: a
-- role that has the rights can set fence.remove.
create or replace function fence.reject_removal()
returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('fence.remove', true) = 'on' then
        return null;
    end if;
    raise exception using errcode = 'ZF006',
        message = 'fences are not removed with other data: tokens that are stale would be accepted',
        hint = 'Leave out the schema fence. To retire resources for good, call fence.forget(prefix), '
            'or begin with: set local fence.remove = ''on''';
end
$$;

-- If the trigger exists, the table is not locked: clients may write while the files are applied again.
do $$
begin
    if not exists (
        select from pg_trigger
        where tgrelid = 'fence.fence'::regclass and tgname = 'reject_removal' and tgenabled = 'A'
    ) then
        drop trigger if exists reject_removal on fence.fence;
        create trigger reject_removal before delete or truncate on fence.fence
        for each statement execute function fence.reject_removal();
        alter table fence.fence enable always trigger reject_removal;
    end if;
end
$$;

do $$ begin perform set_config('search_path', current_setting('fence.search_path'), true); end $$;
