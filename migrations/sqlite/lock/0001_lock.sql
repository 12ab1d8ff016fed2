-- Locks that hand out fencing tokens, inside SQLite, 3.38 or newer. `lock_client::sqlite` has the statements that
-- acquire, renew and release. This file may be applied again (sqlite3 -bail locks.db < 0001_lock.sql): locks stay.
-- The names have a prefix, because the tables live in the application's file.
savepoint fenced_lock_0001;

-- Locks of an earlier build are rejected before anything is changed. They have a trigger of this name.
create temp table fenced_lock_earlier (build);
create temp trigger fenced_lock_earlier_is_rejected before insert on fenced_lock_earlier begin
    select raise(abort, 'this database has locks of an earlier build, and nothing was changed.
To carry their tokens over, while no client runs: create table kept as select name, token from fenced_lock;
drop view fenced_lock_claim; drop table fenced_lock; drop table fenced_lock_queue; apply this file;
insert into fenced_lock (name, token) select name, token from kept');
end;
insert into fenced_lock_earlier select 1 from sqlite_schema where name = 'fenced_lock_claims';
drop table fenced_lock_earlier;

-- The locks. A row is never deleted, and its token never falls. Names are compared byte by byte. Times are in
-- milliseconds of Unix time, by the clock of the machine.
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
    check (holder is null or granted is not null and expires_at_ms is not null and since_ms is not null)
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

-- A name that all clients can have has 1 to 512 bytes of UTF-8 without control characters. Slashes separate
-- segments, and none is empty, `.` or `..`. SQLite can't check that a text is UTF-8.
--
-- A missing row starts at `since_ms`: below all tokens of a lost table if it is no Unix time in milliseconds. A
-- counter that starts too high can never be lowered.
drop trigger if exists fenced_lock_is_valid;
create trigger fenced_lock_is_valid before insert on fenced_lock begin
    select raise(abort, 'fenced_lock: name must have 1 to 512 bytes')
    where length(cast(new.name as blob)) not between 1 and 512;
    -- A pattern ends at the character 0.
    select raise(abort, 'fenced_lock: name must have no control characters')
    where instr(new.name, char(0))
        or new.name glob format('*[%s-%s%s-%s]*', char(1), char(31), char(127), char(159));
    select raise(abort, 'fenced_lock: name must have no segment, between slashes, that is empty, . or ..')
    where instr('/' || new.name || '/', '//') or instr('/' || new.name || '/', '/./')
        or instr('/' || new.name || '/', '/../');
    select raise(abort, 'fenced_lock: since_ms must be the Unix time in milliseconds, from 2020 to a year from now')
    where new.since_ms not between 1577836800000 and (julianday('now') - 2440587.5) * 86400000 + 31536000000;
end;

-- Claims a resource of the fence by a lock in the same file, which must still be held:
--
--     insert into fenced_lock_claim (resource, name, token, holder) values (...);
--
-- It fails with `ZL001`, or with the fence's rejection. A reissue leaves the older tokens of the ownership valid,
-- because a resource is always written with the token it was claimed with. It needs the fence
-- (migrations/sqlite/fence) when it is used, and not before.
drop view if exists fenced_lock_claim;
create view fenced_lock_claim (resource, name, token, holder) as
select null, null, null, null where false;

create trigger fenced_lock_claim_while_held instead of insert on fenced_lock_claim begin
    insert into fence_claim values (new.resource, new.token, new.holder);
    select raise(abort, 'ZL001 the lock is not held with this token any more')
    where not exists (
        select 1 from fenced_lock
        where name = new.name and new.token between granted and token and holder = new.holder
            and expires_at_ms > cast((julianday('now') - 2440587.5) * 86400000 as integer));
end;

release fenced_lock_0001;
