-- The locks in PostgreSQL: what clients call. Apply 0001_schema.sql first.
--
-- Who may use the schema may call these functions, and has no rights on the tables. The functions run
-- with the installer's rights.
--
-- Waiters listen on the channel `fenced_lock`. A notification is ` NAME` for all waiters in no order,
-- or the first 8 characters of the holder, a space and the name for the first waiter of the queue. A
-- whole holder would let anyone who listens pose as that holder.
--
-- Nothing on a caller's search_path can replace what these functions use. Each sets a search_path, or
-- names everything in full, which is faster.

-- Makes the commit of this transaction wait until it is on the disk.
create or replace function fenced_lock.make_durable()
returns void
language plpgsql
as $$
begin
    -- The other values are `on` and `remote_apply`, which waits for more.
    if pg_catalog.current_setting('synchronous_commit')
        operator(pg_catalog.=) any (array['off', 'local', 'remote_write'])
    then
        perform pg_catalog.set_config('synchronous_commit', 'on', true);
    end if;
end
$$;

-- Returns the milliseconds until a time, or 0 if it has passed.
create or replace function fenced_lock.millis_until(moment timestamptz)
returns bigint
language sql
as $$
    select greatest(
        0,
        pg_catalog.ceil(
            extract(epoch from moment operator(pg_catalog.-) pg_catalog.clock_timestamp())
            operator(pg_catalog.*) 1000))::bigint
$$;

-- Returns the first waiter that lives, and the time until which it counts as alive.
create or replace function fenced_lock.first_waiter(
    name text, out holder text, out alive_until timestamptz
)
language plpgsql
as $$
#variable_conflict use_column
begin
    select q.holder, q.alive_until into first_waiter.holder, first_waiter.alive_until
    from fenced_lock.queue q
    where q.name operator(pg_catalog.=) first_waiter.name
        and q.alive_until operator(pg_catalog.>) pg_catalog.clock_timestamp()
    order by q.place limit 1;
end
$$;

-- Notifies the first waiter, or all that wait in no order.
create or replace function fenced_lock.notify(name text)
returns void
language plpgsql
as $$
begin
    perform pg_catalog.pg_notify(
        'fenced_lock',
        pg_catalog.concat(
            pg_catalog.left((fenced_lock.first_waiter(notify.name)).holder, 8), ' ', notify.name));
end
$$;

-- Grants the lock with the next token, if it is free and no other holder is before this one in the
-- queue. A holder that has the lock already gets the same token again, and the full ttl.
--
-- A missing row starts at `since_ms`, the client's Unix time in milliseconds. This is above all tokens
-- that a lost table ever issued, unless clocks went back, or the lock was granted more than 1000 times
-- a second throughout.
--
-- If it is not granted, `remaining_ms` is the time until the lock may be free. With `patience_ms`, the
-- holder is in the queue then, and keeps its place for so long without a try. It tries again after
-- `nap_ms` at the latest; `ahead` waiters are before it.
create or replace function fenced_lock.acquire(
    name text, holder text, ttl_ms bigint, patience_ms bigint, since_ms bigint, label text,
    out token bigint, out granted bigint, out remaining_ms bigint, out ahead bigint,
    out nap_ms bigint
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    ttl interval;
    has_queue boolean;
    own_place bigint;
    problem constant text = case
        when (octet_length(acquire.name) between 1 and 512) is not true
            then 'name must have 1 to 512 bytes'
        -- In bytes of UTF-8, because the database may have another encoding.
        when encode(convert_to(acquire.name, 'UTF8'), 'hex') ~ '^(..)*([01].|7f|c2[89].)'
            then 'name must have no control characters'
        when acquire.name ~ '(^|/)[.]{0,2}(/|$)'
            then 'name must have no segment, between slashes, that is empty, . or ..'
        when (octet_length(acquire.holder) between 1 and 128
                and acquire.holder collate "C" !~ '[^!-~]') is not true
            then 'holder must have 1 to 128 characters of visible ASCII'
        when (acquire.ttl_ms between 1 and 604800000) is not true
            then 'ttl_ms must be between 1 and 604800000, which is 7 days'
        when (acquire.patience_ms between 1000 and 60000) is false
            then 'patience_ms must be null, or between 1000 and 60000'
        -- From 2020 to a year from now. A counter that starts too high can never be lowered.
        when (acquire.since_ms between 1577836800000
                and extract(epoch from clock_timestamp()) * 1000 + 31536000000) is not true
            then 'since_ms must be the Unix time in milliseconds, from 2020 to a year from now'
        when acquire.label is null then 'label must not be null'
    end;
begin
    if problem is not null then
        raise exception using
            errcode = 'invalid_parameter_value', message = 'fenced_lock.acquire: ' || problem;
    end if;
    ttl = acquire.ttl_ms * interval '1 ms';
    perform fenced_lock.make_durable();

    -- 1. Grant the lock, if it is visibly free, and no other holder visibly first. Otherwise the row is
    -- not locked, because that would delay renewals. Once it is locked, the second condition checks its
    -- latest version and the latest queue.
    insert into fenced_lock.lock as l (name, token, granted, holder, expires_at, since_ms, label)
    select acquire.name, acquire.since_ms + 1, acquire.since_ms + 1, acquire.holder,
        clock_timestamp() + ttl, acquire.since_ms, acquire.label
    where not exists (
            select from fenced_lock.lock held
            where held.name = acquire.name and held.holder is not null
                and held.expires_at > clock_timestamp())
        and coalesce(
            (select q.holder from fenced_lock.queue q
                where q.name = acquire.name and q.alive_until > clock_timestamp()
                order by q.place limit 1),
            acquire.holder) = acquire.holder
    on conflict on constraint lock_pkey do update
    set token = l.token + 1, granted = l.token + 1, holder = excluded.holder,
        expires_at = clock_timestamp() + ttl, since_ms = excluded.since_ms, label = excluded.label
    where (l.holder is null or l.expires_at <= clock_timestamp())
        and ((fenced_lock.first_waiter(acquire.name)).holder = acquire.holder) is not false
    returning l.token, l.granted,
        exists (select from fenced_lock.queue q where q.name = acquire.name)
    into acquire.token, acquire.granted, has_queue;
    if found then
        if has_queue then
            delete from fenced_lock.queue q
            where q.name = acquire.name
                and (q.holder = acquire.holder or q.alive_until <= clock_timestamp());
        end if;
        return;
    end if;

    -- 2. A retry after a lost reply.
    update fenced_lock.lock l set expires_at = clock_timestamp() + ttl
    where l.name = acquire.name and l.holder = acquire.holder and l.expires_at > clock_timestamp()
    returning l.token, l.granted into acquire.token, acquire.granted;
    if found then
        return;
    end if;

    -- 3. When may it be free? It may be free by now, or it is the turn of the first waiter.
    select fenced_lock.millis_until(l.expires_at) into acquire.remaining_ms
    from fenced_lock.lock l where l.name = acquire.name and l.expires_at > clock_timestamp();
    if not found then
        select coalesce(fenced_lock.millis_until(head.alive_until), 0) into acquire.remaining_ms
        from fenced_lock.first_waiter(acquire.name) head;
    end if;
    if acquire.patience_ms is null then
        return;
    end if;

    -- 4. Wait in the queue. A waiter that was silent for too long has lost its place.
    delete from fenced_lock.queue q
    where q.name = acquire.name and q.holder = acquire.holder
        and q.alive_until <= clock_timestamp();
    insert into fenced_lock.queue as q (name, holder, alive_until)
    values (acquire.name, acquire.holder,
        clock_timestamp() + acquire.patience_ms * interval '1 ms')
    on conflict on constraint queue_pkey do update set alive_until = excluded.alive_until
    returning q.place into own_place;
    select count(*) into acquire.ahead
    from fenced_lock.queue q
    where q.name = acquire.name and q.place < own_place and q.alive_until > clock_timestamp();
    acquire.nap_ms = least(acquire.patience_ms / 3, acquire.remaining_ms + 1);
end
$$;

-- Sets the full ttl if the lock is still this ownership's, and returns its token.
create or replace function fenced_lock.renew(
    name text, holder text, granted bigint, ttl_ms bigint, out token bigint
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform fenced_lock.make_durable();
    update fenced_lock.lock l
    set expires_at = clock_timestamp() + renew.ttl_ms * interval '1 ms'
    where l.name = renew.name and l.holder = renew.holder and l.granted = renew.granted
        and l.expires_at > clock_timestamp()
    returning l.token into renew.token;
end
$$;

-- Swaps the token for one above `above` and above itself, if the lock is still this ownership's, and
-- returns it.
create or replace function fenced_lock.reissue(
    name text, holder text, granted bigint, above bigint, out token bigint
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform fenced_lock.make_durable();
    update fenced_lock.lock l
    set token = greatest(l.token, reissue.above) + 1
    where l.name = reissue.name and l.holder = reissue.holder and l.granted = reissue.granted
        and l.expires_at > clock_timestamp()
    returning l.token into reissue.token;
end
$$;

-- Empties the row if the holder holds the lock, and removes the holder from the queue. Notifies the
-- next waiter. Returns whether the holder held the lock.
create or replace function fenced_lock.release(name text, holder text)
returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    in_queue boolean;
    owned boolean;
begin
    perform fenced_lock.make_durable();
    update fenced_lock.lock l
    set holder = null, granted = null, expires_at = null, since_ms = null, label = ''
    where l.name = release.name and l.holder = release.holder and l.expires_at > clock_timestamp()
    returning exists (
        select from fenced_lock.queue q where q.name = release.name and q.holder = release.holder)
    into in_queue;
    owned = found;
    if not owned then
        -- It may be a waiter that leaves. The owner may be releasing at the same moment. Both would
        -- notify this waiter, and not the next one. With the row locked, the later of the two sees
        -- what the earlier one did.
        in_queue = exists (
            select from fenced_lock.queue q
            where q.name = release.name and q.holder = release.holder);
        if not in_queue then
            return false;
        end if;
        perform from fenced_lock.lock l where l.name = release.name for update;
    end if;
    if in_queue then
        delete from fenced_lock.queue q where q.name = release.name and q.holder = release.holder;
    end if;
    if not owned then
        perform from fenced_lock.lock l
        where l.name = release.name and l.holder is not null and l.expires_at > clock_timestamp();
        if found then
            return false;
        end if;
    end if;
    perform fenced_lock.notify(release.name);
    return owned;
end
$$;

-- Returns the state of a lock and the number of its fair waiters. The holder is null if the lock is
-- free. Anyone who knows the holder can pose as that holder.
create or replace function fenced_lock.status(
    name text,
    out holder text, out token bigint, out granted bigint, out remaining_ms bigint,
    out since_ms bigint, out label text, out queued bigint
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    select l.token, held.holder, held.granted, held.since_ms, held.label,
        fenced_lock.millis_until(held.expires_at)
    into status.token, status.holder, status.granted, status.since_ms, status.label,
        status.remaining_ms
    from fenced_lock.lock l
    left join fenced_lock.lock held
        on held.name = l.name and held.holder is not null and held.expires_at > clock_timestamp()
    where l.name = status.name;
    select count(*) into status.queued
    from fenced_lock.queue q where q.name = status.name and q.alive_until > clock_timestamp();
end
$$;

-- Whether this holder holds the lock now, and this token belongs to this ownership: a reissue leaves
-- the older tokens valid, because a resource is always written with the token it was claimed with. It
-- locks nothing, so renewals continue.
create or replace function fenced_lock.is_held(name text, token bigint, holder text)
returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select from fenced_lock.lock l
        where l.name = is_held.name and l.holder = is_held.holder
            and is_held.token between l.granted and l.token
            and l.expires_at > clock_timestamp())
$$;

-- Claims a resource of the schema `fence` by a lock of this one: the lock must still be held when the
-- resource is claimed. Returns the token, or raises the fence's rejection, or `ZL001` if the lock is lost. Needs the
-- schema `fence`, with the caller's right to use it, when it is called, and not before.
--
-- The claim comes first. It keeps other claims out until the transaction ends, so a lock that is held
-- afterwards was not lost to a claim in between. In the other order, a client that pauses after the
-- check would claim although its lock was lost meanwhile.
create or replace function fenced_lock.claim(resource text, name text, token bigint, holder text)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    -- At other levels, the check would read the lock as it was when the transaction began.
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using
            errcode = 'feature_not_supported',
            message = 'fenced_lock.claim needs the isolation level READ COMMITTED';
    end if;
    perform fence.claim(claim.resource, claim.token, claim.holder);
    if not fenced_lock.is_held(claim.name, claim.token, claim.holder) then
        raise exception using
            errcode = 'ZL001',
            message = format(
                'lock %L is not held with token %s any more',
                claim.name, claim.token),
            detail = json_build_object(
                'lock', claim.name, 'token', claim.token);
    end if;
    return claim.token;
end
$$;

-- Returns the names of up to 100 locks that are held, whose names have this prefix and follow `after`,
-- in their order; null if there are none. Each is on a line of its own, as UTF-8 in hexadecimal digits,
-- because a name may have a line break.
create or replace function fenced_lock.held_names(prefix text, after text, out names text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    select string_agg(encode(convert_to(held.name, 'UTF8'), 'hex'), e'\n' order by held.name)
    into held_names.names
    from (
        select l.name
        from fenced_lock.lock l
        where l.name > held_names.after and l.name >= held_names.prefix
            and starts_with(l.name, held_names.prefix)
            and l.holder is not null and l.expires_at > clock_timestamp()
        order by l.name limit 100
    ) as held;
end
$$;
