-- Locks that hand out fencing tokens, inside MariaDB, 10.5 or newer: tables, procedures and a view of one database. May
-- be applied again, also while clients use the locks. The tables are those of every earlier build, so counters stay.
--
--     mariadb --delimiter=// DATABASE < 0001_lock.sql
--
-- The names have a prefix, because they live in a database of the application.

-- A procedure keeps the mode in which it was created. This mode rejects values that don't fit.
set @fenced_lock_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

-- The locks. A row is never deleted, and its token never falls. Names are compared byte by byte.
-- Times are in milliseconds of Unix time, by the database's clock.
create table if not exists fenced_lock (
    name varbinary(512) not null primary key,
    -- The last token issued.
    token bigint not null check (token between 0 and 999999999999999),
    -- The token with which the present lock was granted. A reissue does not change it.
    granted bigint,
    -- The owner; null if the lock was released.
    holder varbinary(128),
    expires_at_ms bigint,
    -- The time of the grant by the client's clock.
    since_ms bigint,
    label varchar(200) character set utf8mb4 not null default '',
    check (
        holder is null
        or granted is not null and expires_at_ms is not null and since_ms is not null)
) engine = InnoDB;

-- The waiters in the fair order.
create table if not exists fenced_lock_queue (
    place bigint not null auto_increment primary key,
    name varbinary(512) not null,
    holder varbinary(128) not null,
    -- Each try of a waiter postpones this time. A waiter past it is dead.
    alive_until_ms bigint not null,
    unique key waiter (name, holder),
    key places (name, place)
) engine = InnoDB;

-- The procedures that clients call. Each is one transaction, so a client that pauses never keeps a row locked: call
-- them outside of a transaction, except for `fenced_lock_claim`. Times are by `sysdate(6)`, read once the row is
-- locked. `now(6)` would be the start of the statement. Clients set `time_zone` to UTC, because an hour may occur twice
-- in other zones.
--
-- A procedure answers with one row. It locks the row of the lock first, and then the queue. There is no function,
-- because creating one needs more rights where the binary log is on.

-- Grants the lock with the next token, if it is free and no other holder is before this one in the
-- queue. A holder that has the lock already gets the same token again, and the full ttl.
--
-- A missing row starts at `in_since_ms`, the client's Unix time in milliseconds. This is above all
-- tokens that a lost table ever issued, unless clocks went back, or the lock was granted more than
-- 1000 times a second throughout.
--
-- If it is not granted, `remaining_ms` is the time until the lock may be free. With `in_patience_ms`, the
-- holder is in the queue then, and keeps its place for so long without a try. It tries again after
-- `nap_ms` at the latest; `ahead` waiters are before it.
create or replace procedure fenced_lock_acquire(
    in_name varbinary(512), in_holder varbinary(128), in_ttl_ms bigint, in_patience_ms bigint,
    in_since_ms bigint, in_label varchar(200) character set utf8mb4
)
modifies sql data
begin
    declare now_ms bigint;
    declare present_token bigint;
    declare present_grant bigint;
    declare present_holder varbinary(128) default '';
    declare present_expiry bigint;
    declare first_place bigint;
    declare first_holder varbinary(128);
    declare free_at_ms bigint;
    declare own_place bigint;
    declare ahead bigint;
    -- An empty holder would be taken for that of a free lock.
    declare rejection varchar(128) default case
        when (length(in_name) between 1 and 512) is not true
            then 'name must have 1 to 512 bytes'
        when (cast(convert(in_name using utf8mb4) as binary) = in_name) is not true
            then 'name must be UTF-8'
        when hex(in_name) regexp '^(..)*([01].|7F|C2[89].)'
            then 'name must have no control characters'
        when in_name regexp '(^|/)[.]{0,2}(/|$)'
            then 'name must have no segment, between slashes, that is empty, . or ..'
        when (length(in_holder) between 1 and 128 and in_holder not regexp '[^!-~]') is not true
            then 'holder must have 1 to 128 characters of visible ASCII'
        when (in_ttl_ms between 1 and 604800000) is not true
            then 'ttl_ms must be between 1 and 604800000, which is 7 days'
        when (in_patience_ms between 1000 and 60000) is false
            then 'patience_ms must be null, or between 1000 and 60000'
        -- From 2020 to a year from now. A counter that starts too high can never be lowered.
        when (in_since_ms between 1577836800000
                and unix_timestamp(sysdate(6)) * 1000 + 31536000000) is not true
            then 'since_ms must be the Unix time in milliseconds, from 2020 to a year from now'
        when in_label is null then 'label must not be null'
    end;
    declare exit handler for sqlexception begin rollback; resignal; end;
    if rejection is not null then
        set rejection = concat('fenced_lock_acquire: ', rejection);
        signal sqlstate '22023' set message_text = rejection;
    end if;
    -- The procedures run with the rights of who installed them, who may write to a replica, too.
    if cast(@@global.read_only as char) not in ('0', 'OFF') then
        signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'the server is read-only';
    end if;

    -- 1. A lock that is visibly held is not locked here, because that would delay its renewals. The
    -- holder is empty if the lock is free.
    set transaction isolation level read committed;
    start transaction;
    select token, granted, coalesce(holder, ''), coalesce(expires_at_ms, 0)
    into present_token, present_grant, present_holder, present_expiry
    from fenced_lock where name = in_name;
    set now_ms = cast(floor(unix_timestamp(sysdate(6)) * 1000) as signed);
    if present_expiry <= now_ms or present_holder in ('', in_holder) then
        -- 2. Lock the row, which may have changed meanwhile. A missing one is inserted, also one that
        -- was deleted meanwhile.
        repeat
            if present_token is null then
                insert into fenced_lock (name, token) values (in_name, in_since_ms)
                on duplicate key update name = in_name;
            end if;
            set present_token = null;
            select token, granted, coalesce(holder, ''), coalesce(expires_at_ms, 0)
            into present_token, present_grant, present_holder, present_expiry
            from fenced_lock where name = in_name for update;
        until present_token is not null end repeat;
        set now_ms = cast(floor(unix_timestamp(sysdate(6)) * 1000) as signed);
        if present_expiry <= now_ms then
            set present_holder = '';
        end if;
    end if;
    -- The first waiter that lives. The queue is usually empty, which is seen much faster.
    select min(place) into first_place from fenced_lock_queue where name = in_name;
    if first_place is not null then
        select holder, alive_until_ms into first_holder, free_at_ms
        from fenced_lock_queue
        where name = in_name and alive_until_ms > now_ms
        order by place limit 1;
    end if;

    if present_holder = in_holder then
        -- 3. A retry after a lost reply.
        update fenced_lock set expires_at_ms = now_ms + in_ttl_ms where name = in_name;
    elseif present_holder = '' and coalesce(first_holder, in_holder) = in_holder then
        -- 4. Grant the lock.
        set present_token = present_token + 1;
        set present_grant = present_token;
        update fenced_lock
        set token = present_token, granted = present_grant, holder = in_holder,
            expires_at_ms = now_ms + in_ttl_ms, since_ms = in_since_ms, label = in_label
        where name = in_name;
        if first_place is not null then
            delete from fenced_lock_queue
            where name = in_name and (holder = in_holder or alive_until_ms <= now_ms);
        end if;
    else
        -- 5. It is held, or it is the turn of the first waiter.
        set present_token = null;
        set present_grant = null;
        if present_holder <> '' then
            set free_at_ms = present_expiry;
        end if;
        if in_patience_ms is not null then
            -- 6. Wait in the queue. A waiter that was silent for too long has lost its place.
            delete from fenced_lock_queue
            where name = in_name and holder = in_holder and alive_until_ms <= now_ms;
            insert into fenced_lock_queue (name, holder, alive_until_ms)
            values (in_name, in_holder, now_ms + in_patience_ms)
            on duplicate key update alive_until_ms = values(alive_until_ms);
            select place into own_place
            from fenced_lock_queue where name = in_name and holder = in_holder;
            select count(*) into ahead
            from fenced_lock_queue
            where name = in_name and place < own_place and alive_until_ms > now_ms;
        end if;
    end if;
    commit;
    select present_token as token, present_grant as granted,
        cast(greatest(0, free_at_ms - now_ms) as signed) as remaining_ms, ahead,
        cast(least(in_patience_ms div 3, greatest(0, free_at_ms - now_ms) + 1) as signed) as nap_ms;
end;

-- Sets the full ttl if the lock is still this ownership's, and returns its token.
create or replace procedure fenced_lock_renew(
    in_name varbinary(512), in_holder varbinary(128), in_granted bigint, in_ttl_ms bigint
)
modifies sql data
begin
    declare now_ms bigint;
    declare present_token bigint;
    declare present_expiry bigint;
    declare exit handler for sqlexception begin rollback; resignal; end;
    if cast(@@global.read_only as char) not in ('0', 'OFF') then
        signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'the server is read-only';
    end if;
    set transaction isolation level read committed;
    start transaction;
    select token, expires_at_ms into present_token, present_expiry
    from fenced_lock
    where name = in_name and holder = in_holder and granted = in_granted
    for update;
    set now_ms = cast(floor(unix_timestamp(sysdate(6)) * 1000) as signed);
    if present_expiry > now_ms then
        update fenced_lock set expires_at_ms = now_ms + in_ttl_ms where name = in_name;
    else
        set present_token = null;
    end if;
    commit;
    select present_token as token;
end;

-- Swaps the token for one above `in_above` and above itself, if the lock is still this ownership's,
-- and returns it.
create or replace procedure fenced_lock_reissue(
    in_name varbinary(512), in_holder varbinary(128), in_granted bigint, in_above bigint
)
modifies sql data
begin
    declare now_ms bigint;
    declare present_token bigint;
    declare present_expiry bigint;
    declare exit handler for sqlexception begin rollback; resignal; end;
    if cast(@@global.read_only as char) not in ('0', 'OFF') then
        signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'the server is read-only';
    end if;
    set transaction isolation level read committed;
    start transaction;
    select greatest(token, in_above) + 1, expires_at_ms into present_token, present_expiry
    from fenced_lock
    where name = in_name and holder = in_holder and granted = in_granted
    for update;
    set now_ms = cast(floor(unix_timestamp(sysdate(6)) * 1000) as signed);
    if present_expiry > now_ms then
        update fenced_lock set token = present_token where name = in_name;
    else
        set present_token = null;
    end if;
    commit;
    select present_token as token;
end;

-- Empties the row if the holder holds the lock, and removes the holder from the queue. Returns
-- whether the holder held the lock, and the beginning of the first waiter's holder: the whole holder
-- would let its reader pose as the waiter.
create or replace procedure fenced_lock_release(in_name varbinary(512), in_holder varbinary(128))
modifies sql data
begin
    declare released bigint;
    declare first_place bigint;
    declare first_holder varbinary(128);
    declare exit handler for sqlexception begin rollback; resignal; end;
    -- A replica that lags behind would say that the lock was not held.
    if cast(@@global.read_only as char) not in ('0', 'OFF') then
        signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'the server is read-only';
    end if;
    set transaction isolation level read committed;
    start transaction;
    update fenced_lock
    set holder = null, granted = null, expires_at_ms = null, since_ms = null, label = ''
    where name = in_name and holder = in_holder
        and expires_at_ms > floor(unix_timestamp(sysdate(6)) * 1000);
    set released = row_count();
    select min(place) into first_place from fenced_lock_queue where name = in_name;
    if first_place is not null then
        delete from fenced_lock_queue where name = in_name and holder = in_holder;
        select holder into first_holder
        from fenced_lock_queue
        where name = in_name and alive_until_ms > floor(unix_timestamp(sysdate(6)) * 1000)
        order by place limit 1;
    end if;
    commit;
    select released, convert(left(first_holder, 8) using utf8mb4) as first_waiter;
end;

-- Returns the state of a lock and the number of its fair waiters. The holder is null if the lock is
-- free. Anyone who knows the holder can pose as that holder.
create or replace procedure fenced_lock_status(in_name varbinary(512))
reads sql data
begin
    declare now_ms bigint
        default cast(floor(unix_timestamp(sysdate(6)) * 1000) as signed);
    select l.token, convert(held.holder using utf8mb4) as holder, held.granted, held.since_ms,
        held.label, cast(held.expires_at_ms - now_ms as signed) as remaining_ms,
        (select count(*) from fenced_lock_queue
            where name = in_name and alive_until_ms > now_ms) as queued
    from (select 1) as one
    left join fenced_lock l on l.name = in_name
    left join fenced_lock held
        on held.name = in_name and held.holder is not null and held.expires_at_ms > now_ms;
end;

-- Returns the names of up to 100 locks that are held, whose names have this prefix and follow
-- `in_after`, in their order; null if there are none. Each is on a line of its own in hexadecimal
-- digits, because any bytes may be a name.
create or replace procedure fenced_lock_held_names(
    in_prefix varbinary(512), in_after varbinary(512)
)
reads sql data
begin
    declare now_ms bigint
        default cast(floor(unix_timestamp(sysdate(6)) * 1000) as signed);
    -- A shorter answer would be cut off without an error.
    set session group_concat_max_len = 1048576;
    select convert(group_concat(hex(held.name) order by held.name separator '\n') using utf8mb4) as names
    from (
        select name from fenced_lock
        where name > in_after and name >= in_prefix and left(name, length(in_prefix)) = in_prefix
            and holder is not null and expires_at_ms > now_ms
        order by name limit 100
    ) as held;
end;

-- The locks. A temporary table of the session replaces a table or a view of its name, also inside
-- procedures, but not inside a view. So one called `fenced_lock` changes no claim. One called
-- `fenced_lock_owners` does: a session that makes it claims with a lost lock, and the fence alone
-- rejects its older tokens. Against that, grant no CREATE TEMPORARY TABLES on this database.
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
-- the resource is claimed. Fails with `ZL001` if it is not, or with the fence's rejection: roll back.
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
