-- A claim of a resource by a lock. May be applied again.

set @fenced_lock_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

-- Claims a resource of the database `fence` by a lock of this one: the lock must still be held when
-- the resource is claimed. Fails with `ZL001` if it is not, or with the fence's refusal: roll back.
-- Needs the fence when it is called, and not before. Call it in a transaction.
--
-- The claim comes first. It keeps other claims out until the transaction ends, so a lock that is held
-- afterwards was not lost to a claim in between. In the other order, a client that pauses after the
-- check would claim although its lock was lost meanwhile. The check locks nothing, so renewals
-- continue.
create or replace procedure fenced_lock_claim(
    in_resource varchar(512) character set utf8mb4, in_name varbinary(512), in_token bigint,
    in_holder varbinary(128)
)
modifies sql data
begin
    declare held boolean default false;
    -- At REPEATABLE READ, the check would read the lock as it was before the claim. The level must be
    -- the session's: MariaDB doesn't show the level of a single transaction.
    if @@session.tx_isolation <> 'READ-COMMITTED' then
        signal sqlstate '0A000' set message_text =
            'fenced_lock_claim needs: set session transaction isolation level read committed';
    end if;
    call fence.claim(in_resource, in_token, in_holder);
    -- A reissue leaves the older tokens of the ownership valid, because a resource is always written
    -- with the token it was claimed with. A subquery of IF would lock the row.
    select true into held from fenced_lock
    where name = in_name and in_token between granted and token and holder = in_holder
        and expires_at_ms > floor(unix_timestamp(sysdate(6)) * 1000);
    if not held then
        signal sqlstate 'ZL001' set message_text = 'the lock is not held with this token any more';
    end if;
end;

set session sql_mode = @fenced_lock_sql_mode;
