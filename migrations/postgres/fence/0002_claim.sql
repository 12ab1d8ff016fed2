-- The fence in PostgreSQL: the rule, and claims. Apply 0001_schema.sql first.
--
-- What runs for every claim and row qualifies each name, operators included. So the caller's search_path cannot make it
-- call anything else, with the installer's rights. The rest sets its search_path, which takes longer.
--
-- In all files, each call of one of the fence's functions passes arguments of exactly the declared types. Otherwise a
-- function of the same name, which another role created while the files were applied, could match better.

-- Which of the two is malformed: 'token' or 'holder'. Null counts as malformed. Returns null if neither is.
create or replace function fence.malformed(token bigint, holder text)
returns text language sql immutable as $$
    select case
        when (token operator(pg_catalog.>=) 1 and token operator(pg_catalog.<=) 999999999999999) is not true
            then 'token'
        when (pg_catalog.octet_length(holder) operator(pg_catalog.<=) 128
            and holder operator(pg_catalog.!~) '[^!-~]' collate pg_catalog."C") is not true
            then 'holder'
    end
$$;

-- The rule, for a resource that has a fence: whether it accepts the offered token and holder. The form of an offer that
-- equals the fence was checked when the fence was written.
create or replace function fence.accepts(fence_token bigint, fence_holder text, token bigint, holder text)
returns boolean language sql immutable as $$
    select (token operator(pg_catalog.>) fence_token and fence.malformed(token, holder) is null)
        or (token operator(pg_catalog.=) fence_token
            and holder operator(pg_catalog.=) fence_holder collate pg_catalog."C")
$$;

-- Whether this transaction wrote this row of fence.fence: the only proof of a claim. There is no secret. A session
-- without rights on the table writes the row only by `claim`, and a rollback to a savepoint takes it back.
--
-- The column claimed_by has the id of this transaction. That is enough, unless the row was restored from a dump: there
-- the same number may mean a transaction of another server. So xmin is compared, too, the id under which this server
-- wrote the row. If this transaction wrote it, xmin is this transaction's id, or the later one of a savepoint, and its
-- age is not greater. A row that was restored before has an older xmin. (One restored during this transaction passes.)
create or replace function fence.is_written_here(claimed_by xid8, xmin xid)
returns boolean language sql stable as $$
    select claimed_by operator(pg_catalog.=) pg_catalog.pg_current_xact_id()
        and pg_catalog.age(xmin) operator(pg_catalog.<=)
            pg_catalog.age(pg_catalog.pg_current_xact_id()::pg_catalog.xid)
$$;

-- Raises the rejection of a claim that is stale, or a holder conflict.
create or replace function fence.reject_claim(
    resource text, token bigint, holder text, highest_token bigint, highest_holder text)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using
        errcode = case when token < highest_token then 'ZF001' else 'ZF002' end,
        message = case when token < highest_token
            then format('token %s is stale: the fence of %L is at %s', token, resource, highest_token)
            else format('token %s of %L belongs to another holder: it was issued twice', token, resource) end,
        detail = json_build_object('resource', resource, 'token', token, 'highest_token', highest_token),
        hint = case
            -- Our lock clients start a counter at the Unix time in milliseconds. A day has 86400000 of them.
            when highest_token - token > 86400000 then 'The token is days below the fence. Probably two lock services '
                'guard this resource, or a counter started anew.'
            when token < highest_token then 'The lock was granted to another client since: acquire it again.'
            when '' in (holder, highest_holder) then 'One of the two holders is empty: it was probably forgotten.'
            else 'The lock service lost its counter: the lock must be acquired again.' end;
end
$$;

create or replace function fence.reject_malformed(part text, resource text, token bigint)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception using errcode = 'ZF003',
        message = format('the %s is malformed', part) || case when part = 'resource'
            then coalesce(': it has ' || octet_length(resource) || ' bytes', ': it is null') else '' end,
        detail = json_build_object('resource', left(resource, 512), 'token', token),
        hint = 'A resource is a text of 1 to 512 bytes, a token a number from 1 to 999999999999999'
            ', and a holder up to 128 characters of visible ASCII.';
end
$$;

-- Claims a resource: advances its fence inside the caller's transaction and holds it until the transaction ends, also
-- if it is prepared; or raises a rejection.
--
-- A transaction's first claim writes the fence's row, even if the token is equal. So a transaction whose snapshot is
-- older (REPEATABLE READ, SERIALIZABLE) can't claim afterwards: PostgreSQL lets it update no row that was updated
-- since, and the claim fails with 40001. Nobody claims without seeing what the last writer wrote. A further claim
-- writes only a higher token.
create or replace function fence.claim_or_reject(resource text, token bigint, holder text)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
    malformed text;
    seen fence.fence;
begin
    -- 1. Check the form of the arguments.
    malformed = case
        when octet_length(resource) between 1 and 512 then fence.malformed(token, holder) else 'resource' end;
    if malformed is not null then
        perform fence.reject_malformed(malformed, resource, token);
    end if;

    -- 2. Insert the first fence; or lock the latest row, and write it if the rule accepts. Nothing is written if the
    -- rule rejects, or if this transaction has claimed with the same token before.
    insert into fence.fence as f values (resource, token, holder, pg_current_xact_id())
    on conflict on constraint fence_pkey do update
    set token = excluded.token, holder = excluded.holder, claimed_by = excluded.claimed_by
    where fence.accepts(f.token, f.holder, excluded.token, excluded.holder)
        and (excluded.token > f.token or not fence.is_written_here(f.claimed_by, f.xmin));
    if found then
        return;
    end if;

    -- 3. Nothing was written, but the latest row is locked. This statement sees that row: at READ COMMITTED its
    -- snapshot is newer than the lock, and at the other levels the statement above has failed if the row is newer than
    -- the transaction's snapshot. If token and holder are not those of the row, the rule has rejected them.
    select * into strict seen from fence.fence f where f.resource = claim_or_reject.resource collate "C";
    if seen.token <> token or seen.holder <> holder collate "C" then
        perform fence.reject_claim(resource, token, holder, seen.token, seen.holder);
    end if;
end
$$;

-- Claims a resource, and returns the fence's token. The update is a short cut, in half the time: if it writes a row, it
-- writes what claim_or_reject would. It leaves the other cases to that function: no fence yet, a rejection, or a row
-- with this transaction's id: a further claim, or a row that was restored.
--
-- Why 33 does not pass while 34 is about to commit: the update waits for the transaction that wrote the row. If that
-- commits, PostgreSQL judges the condition again, on the row as committed. (At the higher levels it raises 40001.)
create or replace function fence.claim(resource text, token bigint, holder text default '')
returns bigint language plpgsql security definer as $$
begin
    update fence.fence f
    set token = claim.token, holder = claim.holder, claimed_by = pg_catalog.pg_current_xact_id()
    where f.resource operator(pg_catalog.=) claim.resource collate pg_catalog."C"
        and fence.accepts(f.token, f.holder, claim.token, claim.holder)
        and f.claimed_by operator(pg_catalog.<>) pg_catalog.pg_current_xact_id();
    if not found then
        perform fence.claim_or_reject(claim.resource, claim.token, claim.holder);
    end if;
    return claim.token;
end
$$;

-- Presents a token and holder for this transaction's blind writes to protected tables, and returns the token. When a
-- row is written whose resource is not claimed yet, `verify` claims it with this token. So the lock of this token must
-- guard all rows that are written in this way. A row is checked after it is written, so a blind write locks the row
-- before the fence. It can deadlock with a transaction that claimed first: PostgreSQL ends one with 40P01.
create or replace function fence.present(token bigint, holder text default '')
returns bigint language plpgsql as $$
begin
    if fence.malformed(token, holder) is not null then
        perform fence.reject_malformed(fence.malformed(token, holder), null::pg_catalog.text, token);
    end if;
    -- A holder has no spaces, and may be empty.
    perform pg_catalog.set_config(
        'fence.presented', pg_catalog.concat_ws(' ', pg_catalog.pg_current_xact_id(), token, holder), true);
    return token;
end
$$;

-- Returns true if this transaction has claimed the resource, or can claim it with the token that it presents. Raises an
-- error otherwise. The trigger of a protected table calls it for each row.
create or replace function fence.verify(resource text)
returns boolean language plpgsql security definer as $$
declare
    presented pg_catalog.text[];
begin
    -- 1. Has this transaction claimed the resource?
    perform from fence.fence f
    where f.resource operator(pg_catalog.=) verify.resource collate pg_catalog."C"
        and fence.is_written_here(f.claimed_by, f.xmin);
    if found then
        return true;
    end if;

    -- 2. Claim with what was presented: this transaction's id, the token, the holder. A setting that an earlier user of
    -- the connection left has the id of another transaction. A session that forges it could as well call `claim`.
    presented = pg_catalog.string_to_array(pg_catalog.current_setting('fence.presented', true), ' ');
    if presented[1] operator(pg_catalog.=) pg_catalog.pg_current_xact_id()::pg_catalog.text then
        return fence.claim(verify.resource, presented[2]::pg_catalog.int8, presented[3]) is not null;
    end if;

    -- 3. Reject the write.
    if (pg_catalog.octet_length(verify.resource) operator(pg_catalog.>=) 1
        and pg_catalog.octet_length(verify.resource) operator(pg_catalog.<=) 512) is not true
    then
        perform fence.reject_malformed('resource'::pg_catalog.text, verify.resource, null::pg_catalog.int8);
    end if;
    raise exception using errcode = 'ZF004',
        message = pg_catalog.format('a token is required for %L, as the table is protected', verify.resource),
        detail = pg_catalog.json_build_object('resource', verify.resource),
        hint = 'In the same transaction, call fence.claim(resource, token, holder) before you read'
            ', or fence.present(token, holder) before a write that depends on nothing read.';
end
$$;
