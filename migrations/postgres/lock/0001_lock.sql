-- Locks that hand out fencing tokens, inside PostgreSQL, 13 or newer. May be applied again.
--
-- Each function is one statement and one transaction of its caller, so a client that pauses never
-- keeps a row locked. Times are by the database's clock, `clock_timestamp()`. `now()` would be the
-- start of the transaction, and a transaction may wait for another one first.
--
-- The schema is not called `lock`, because applications are likely to have one of this name.

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

-- Revokes all rights of other roles on these tables, which default privileges may have granted.
do $$
declare
    granted pg_catalog.record;
begin
    for granted in
        select distinct c.oid::pg_catalog.regclass as relation, acl.grantee, c.relkind
        from pg_catalog.pg_class c
        cross join lateral pg_catalog.aclexplode(c.relacl) as acl
        where c.relnamespace = 'fenced_lock'::pg_catalog.regnamespace::pg_catalog.oid
            and c.relkind in ('r', 'S')
            and acl.grantee operator(pg_catalog.<>) c.relowner
    loop
        execute pg_catalog.format(
            'revoke all on %s %s from %s',
            case granted.relkind when 'S' then 'sequence' else 'table' end, granted.relation,
            case granted.grantee
                when 0::pg_catalog.oid then 'public'
                else granted.grantee::pg_catalog.regrole::pg_catalog.text
            end);
    end loop;
end
$$;
