-- Locks that hand out fencing tokens, in PostgreSQL, 13 or newer: the schema `fenced_lock`, its owner, and its tables.
--
-- Apply all files of this folder in the order of their names, in one transaction:
--
--     cat *.sql | psql mydatabase --set ON_ERROR_STOP=1 --single-transaction
--
-- Applied again, they repair the functions. Locks and grants stay as they are. The schema is not called `lock`, because
-- applications are likely to have one of this name.
--
-- Each function is one statement and one transaction of its caller, so a client that pauses never keeps a row locked.
-- Times are by the database's clock, `clock_timestamp()`. `now()` would be the start of the transaction, and a
-- transaction may wait for another one first.

-- While this file is applied, names resolve in the catalog alone. Its end restores the path. The other files need the
-- catalog in front. Both settings last no longer than the transaction.
do $$
begin
    if pg_catalog.array_to_string(pg_catalog.current_schemas(true), ',')
        operator(pg_catalog.!~) '^(pg_temp_[0-9]+,)?pg_catalog(,|$)'
    then
        raise exception using errcode = 'invalid_schema_name', message = 'pg_catalog must be first in the search_path';
    end if;
    perform pg_catalog.set_config('fenced_lock.search_path', pg_catalog.current_setting('search_path'), true);
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    -- One application at a time.
    perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('fenced_lock'));
end
$$;

-- Checks what is there. Nobody but the installer may own the schema or anything in it, because the functions run with
-- their owner's rights and call each other.
do $$
declare
    other record;
    found_version integer;
begin
    if pg_catalog.current_setting('search_path') operator(pg_catalog.<>) 'pg_catalog, pg_temp' then
        raise exception using
            errcode = 'no_active_sql_transaction', message = 'the files of the locks must be applied in a transaction',
            hint = 'Call psql with --single-transaction.';
    end if;

    select * into other
    from (
        select 1, 'the schema fenced_lock', oid, nspowner from pg_namespace
        union all
        select 2, oid::regclass::text, relnamespace, relowner from pg_class
        union all
        select 3, oid::regprocedure::text, pronamespace, proowner from pg_proc
    ) as object (place, name, schema, owner)
    where schema = to_regnamespace('fenced_lock') and owner <> quote_ident(current_user)::regrole
    order by place limit 1;
    if found then
        raise exception using
            errcode = 'insufficient_privilege',
            message = format('%s belongs to %s', other.name, other.owner::regrole),
            hint = 'Install the locks as the owner of the schema, or remove what is not its own.';
    end if;

    -- Earlier builds had no version.
    if to_regprocedure('fenced_lock.version()') is not null then
        execute 'select fenced_lock.version()' into found_version;
    elsif to_regclass('fenced_lock.lock') is not null then
        found_version = 0;
    end if;
    if found_version <> 7 then
        raise exception using
            errcode = 'object_not_in_prerequisite_state',
            message = format('the schema fenced_lock is of another build: its version is %s, not 7', found_version),
            hint = 'To carry it over, in one transaction: alter schema fenced_lock rename to lock_before; apply the '
                'files; insert into fenced_lock.lock select * from lock_before.lock; drop schema lock_before cascade.';
    end if;
end
$$;

create schema if not exists fenced_lock;

-- The locks. A row is never deleted, and its token never falls. Names are compared byte by byte. The
-- fillfactor leaves space in each page, so that an update stays in the page and touches no index.
create table if not exists fenced_lock.lock (
    name text collate "C" not null,
    -- The last token issued.
    token bigint not null,
    -- The token with which the present lock was granted. A reissue does not change it.
    granted bigint,
    -- The owner; null if the lock was released.
    holder text collate "C",
    expires_at timestamptz,
    -- The time of the grant by the client's clock, in milliseconds of Unix time.
    since_ms bigint,
    label text not null default '',
    constraint lock_pkey primary key (name),
    constraint lock_token_check check (token between 0 and 999999999999999),
    constraint lock_holder_check check (
        holder is null or granted is not null and expires_at is not null and since_ms is not null)
) with (fillfactor = 50);

-- The waiters in the fair order. A crash of the server empties this table. Then the waiters queue
-- again in the order of their next tries. In return, waiting writes nothing to the disk.
create unlogged table if not exists fenced_lock.queue (
    name text collate "C" not null,
    holder text collate "C" not null,
    place bigint generated always as identity,
    -- Each try of a waiter postpones this time. A waiter past it is dead.
    alive_until timestamptz not null,
    constraint queue_pkey primary key (name, holder)
);
create index if not exists queue_place on fenced_lock.queue (name, place);

do $$ begin perform set_config('search_path', current_setting('fenced_lock.search_path'), true); end $$;
