-- Locks that hand out fencing tokens, inside SQLite, 3.38 or newer. `lock_client::sqlite` has the
-- statements that acquire, renew and release. May be applied again.
--
-- The names have a prefix, because the tables live in the application's file.

-- The locks. A row is never deleted, and its token never falls. Names are compared byte by byte.
-- Times are in milliseconds of Unix time, by the clock of the machine.
create table if not exists fenced_lock (
    name text not null collate binary primary key,
    -- The last token issued.
    token integer not null check (token between 0 and 999999999999999),
    -- The token with which the present lock was granted. A reissue does not change it.
    granted integer,
    -- The owner; null if the lock was released.
    holder text collate binary,
    expires_at_ms integer,
    -- The time of the grant by the client's clock.
    since_ms integer,
    label text not null default '',
    check (
        holder is null
        or granted is not null and expires_at_ms is not null and since_ms is not null)
) strict;

-- The waiters in the fair order.
create table if not exists fenced_lock_queue (
    place integer primary key autoincrement,
    name text not null collate binary,
    holder text not null collate binary,
    -- Each try of a waiter postpones this time. A waiter past it is dead.
    alive_until_ms integer not null,
    unique (name, holder)
) strict;
create index if not exists fenced_lock_queue_place on fenced_lock_queue (name, place);

-- Claims a resource of the fence by a lock in the same file, which must still be held:
--
--     insert into fenced_lock_claim (resource, name, token, holder) values (…);
--
-- It fails with `ZL001`, or with the fence's refusal. A reissue leaves the older tokens of the
-- ownership valid, because a resource is always written with the token it was claimed with. It needs
-- the fence (migrations/sqlite/fence) when it is used, and not before.
create view if not exists fenced_lock_claim (resource, name, token, holder) as
select null, null, null, null where false;

create trigger if not exists fenced_lock_claims instead of insert on fenced_lock_claim
begin
    insert into fence_claim values (new.resource, new.token, new.holder);
    select raise(abort, 'ZL001 the lock is not held with this token any more')
    where not exists (
        select 1 from fenced_lock
        where name = new.name and new.token between granted and token and holder = new.holder
            and expires_at_ms > cast((julianday('now') - 2440587.5) * 86400000 as integer));
end;
