-- A claim of a resource by a lock. May be applied again.

set @fenced_lock_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

-- The locks. A temporary table of the session replaces a table or a view of its name, also inside
-- procedures, but not inside a view. So one called `fenced_lock` changes no claim. One called
-- `fenced_lock_owners` does: a session that makes it claims with a lost lock, and the fence alone
-- refuses its older tokens. Against that, grant no CREATE TEMPORARY TABLES on this database.
create or replace sql security definer view fenced_lock_owners as
select name, granted, token, holder, expires_at_ms from fenced_lock;

-- Whether this holder holds the lock now, and this token belongs to this ownership: a reissue leaves
-- the older tokens valid, because a resource is always written with the token it was claimed with.
create or replace procedure fenced_lock_check(
    in in_name varbinary(512), in in_token bigint, in in_holder varbinary(128), out held boolean
)
reads sql data sql security definer
begin
    -- 1. A locking read sees the latest version, also in a transaction that reads an older state. A
    -- row that does not match is unlocked at once at READ COMMITTED. So the condition is the loss, and
    -- renewals continue. A comparison for equality would keep the row locked.
    --
    -- In the session's zone, an hour may occur twice, and a lock would seem to be held an hour longer.
    declare lost boolean default false;
    declare present boolean default false;
    set statement time_zone = '+00:00' for
    select true into lost from fenced_lock_owners
    where name >= in_name and name < concat(in_name, x'00')
        and not coalesce(
            holder = in_holder and in_token between granted and token
                and expires_at_ms > floor(unix_timestamp(sysdate(6)) * 1000),
            false)
    lock in share mode;
    -- 2. A lock without a row was never granted.
    select true into present from fenced_lock_owners where name = in_name;
    set held = present and not lost;
end;

-- Claims a resource of the database `fence` by a lock of this one: the lock must still be held when
-- the resource is claimed. Fails with `ZL001` if it is not, or with the fence's refusal: roll back.
-- Needs the fence when it is called, and not before. Call it in a transaction.
--
-- The caller needs EXECUTE on this procedure, on `fenced_lock_check` and on `fence.claim`.
--
-- The claim comes first. It keeps other claims out until the transaction ends, so a lock that is held
-- afterwards was not lost to a claim in between. In the other order, a client that pauses after the
-- check would claim although its lock was lost meanwhile.
create or replace procedure fenced_lock_claim(
    in_resource varchar(512) character set utf8mb4, in_name varbinary(512), in_token bigint,
    in_holder varbinary(128)
)
modifies sql data sql security invoker
begin
    declare held boolean;
    -- At other levels, the check keeps the lock's row locked until the transaction ends. MariaDB
    -- doesn't show the level of a single transaction, but the check is right at each of them.
    if @@session.tx_isolation <> 'READ-COMMITTED' then
        signal sqlstate '0A000' set message_text =
            'fenced_lock_claim needs: set session transaction isolation level read committed';
    end if;
    call fence.claim(in_resource, in_token, in_holder);
    call fenced_lock_check(in_name, in_token, in_holder, held);
    if not held then
        signal sqlstate 'ZL001' set message_text = 'the lock is not held with this token any more';
    end if;
end;

set session sql_mode = @fenced_lock_sql_mode;
