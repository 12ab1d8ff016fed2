-- The fence inside PostgreSQL, 13 or newer: the rule, claims, and views. Apply 0002_protect.sql
-- next. Both files may be applied again.
--
--     psql --set ON_ERROR_STOP=1 --single-transaction \
--         --file 0001_fence.sql --file 0002_protect.sql
--
-- A transaction claims its resources, then reads, then writes. It claims each resource with the
-- token of the lock that guards it:
--
--     begin;
--     select fence.claim('alice', 34, 'me');
--     select balance from accounts where account_id = 'alice';
--     update accounts set balance = 70 where account_id = 'alice';
--     commit;
--
-- A refusal is an error with a SQLSTATE of its own. Its detail is a JSON object:
--
--     ZF001  stale             {"resource", "token", "highest_token"}
--     ZF002  holder conflict   {"resource", "token", "highest_token"}
--     ZF003  malformed         {"resource", "token"}
--     ZF004  token required    {"resource"}
--     ZF005  truncate refused
--
-- migrations/README.md says what is guaranteed, and what is not.
--
-- `claim`, and `require` in the next file, run with the installer's rights in the caller's session.
-- They qualify every name with its schema, operators included, so that nothing on the caller's
-- search_path can replace what they use. Setting a search_path of their own would cost more.

create schema if not exists fence;

-- The fences. A row is never deleted, and its token never falls. Only the functions below write
-- here, and they check every value: check constraints would cost a claim 5 % of its speed. The
-- fillfactor leaves space in each page, so that an update stays in the page and touches no index.
create table if not exists fence.fence (
    resource text collate "C" not null,
    token bigint not null,
    holder text collate "C" not null,
    -- The last transaction that claimed the resource.
    claimed_by xid8 not null,
    constraint fence_pkey primary key (resource)
) with (fillfactor = 50);

-- The rule, for a resource that has a fence: whether it accepts the offered token and holder. A
-- plain SQL function is inlined into each statement that uses it.
create or replace function fence.accepts(
    fence_token bigint, fence_holder text, token bigint, holder text
)
returns boolean
language sql immutable
as $$
    select token operator(pg_catalog.>) fence_token
            and token operator(pg_catalog.<=) 999999999999999
            and holder collate pg_catalog."C" operator(pg_catalog.~) '^[!-~]{0,128}$'
        or token operator(pg_catalog.=) fence_token and holder operator(pg_catalog.=) fence_holder
$$;

-- Claims a resource: advances its fence inside the caller's transaction and holds it until the
-- transaction ends, or raises a refusal.
--
-- A claim writes the row even if the fence stays the same. Otherwise a transaction with an older
-- snapshot (REPEATABLE READ, SERIALIZABLE) could claim after the latest write and not see that
-- write. As it is, the claim fails with 40001.
create or replace function fence.claim(resource text, token bigint, holder text default '')
returns void
language plpgsql security definer
as $$
begin
    update fence.fence f
    set token = claim.token, holder = claim.holder, claimed_by = pg_catalog.pg_current_xact_id()
    -- The arguments may come from columns with other collations.
    where f.resource operator(pg_catalog.=) claim.resource collate pg_catalog."C"
        and fence.accepts(f.token, f.holder, claim.token, claim.holder collate pg_catalog."C")
        and f.claimed_by operator(pg_catalog.<>) pg_catalog.pg_current_xact_id();
    if not found then
        perform fence.claim_otherwise(
            claim.resource collate pg_catalog."C", claim.token, claim.holder);
    end if;
end
$$;

-- The rest of `claim`: the resource has no fence yet, or its fence refuses, or this transaction has
-- already claimed it.
create or replace function fence.claim_otherwise(resource text, token bigint, holder text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    seen fence.fence;
begin
    if (octet_length(resource) between 1 and 512 and fence.accepts(0, null, token, holder))
        is not true
    then
        perform fence.refuse_malformed(resource, token);
    end if;

    -- 1. This transaction may have claimed the resource already.
    perform from fence.fence f
    where f.resource = claim_otherwise.resource and f.token = claim_otherwise.token
        and f.holder = claim_otherwise.holder and f.claimed_by = pg_current_xact_id()
        -- A row of a restored backup may have the same id by chance: see `require`.
        and age(f.xmin) <= age(pg_current_xact_id()::xid);
    if found then
        return;
    end if;

    -- 2. Insert the first fence, or apply the rule to the latest row, which the upsert locks.
    insert into fence.fence as f values (resource, token, holder, pg_current_xact_id())
    on conflict on constraint fence_pkey do update
    set token = excluded.token, holder = excluded.holder, claimed_by = excluded.claimed_by
    where fence.accepts(f.token, f.holder, excluded.token, excluded.holder);
    if found then
        return;
    end if;

    -- 3. The rule has refused.
    select * into strict seen from fence.fence f where f.resource = claim_otherwise.resource;
    if seen.token > token then
        raise exception using
            errcode = 'ZF001',
            message = format(
                'token %s is stale: the fence of %L is at %s', token, resource, seen.token),
            detail = json_build_object(
                'resource', resource, 'token', token, 'highest_token', seen.token);
    end if;
    raise exception using
        errcode = 'ZF002',
        message = format(
            'token %s of %L belongs to another holder: it was issued twice', token, resource),
        detail = json_build_object(
            'resource', resource, 'token', token, 'highest_token', seen.token);
end
$$;

create or replace function fence.refuse_malformed(resource text, token bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using
        errcode = 'ZF003',
        message = format('%s is malformed', case
            when (octet_length(resource) between 1 and 512) is not true then 'the resource'
            when (token between 1 and 999999999999999) is not true then 'the token'
            else 'the holder'
        end),
        detail = json_build_object('resource', resource, 'token', token),
        hint = 'A resource is a text of 1 to 512 bytes, a token a number from 1 to 999999999999999'
            ', and a holder up to 128 characters of visible ASCII.';
end
$$;

-- Presents a token and holder for this transaction's blind writes to protected tables. A written
-- row claims its resource with them, unless the transaction has already claimed the resource.
create or replace function fence.present(token bigint, holder text default '')
returns void
language plpgsql
as $$
begin
    if fence.accepts(0, null, present.token, present.holder) is not true then
        perform fence.refuse_malformed('any', present.token);
    end if;
    -- The transaction's id marks the settings as its own. A setting of the session, left by a
    -- previous user of the connection, has none.
    perform
        pg_catalog.set_config(
            'fence.transaction', pg_catalog.pg_current_xact_id()::pg_catalog.text, true),
        pg_catalog.set_config('fence.token', present.token::pg_catalog.text, true),
        pg_catalog.set_config('fence.holder', present.holder, true);
end
$$;

-- The fences. Knowing a holder proves ownership, so the view shows only the beginning of it, and
-- nothing of a short one.
create or replace view fence.fences as
select resource, token,
    case
        when holder = '' then ''
        when pg_catalog.length(holder) < 16 then '...'
        else pg_catalog."left"(holder, 8) || '...'
    end as holder
from fence.fence;

-- The protected tables: one row for each table and each partition. A column is false if the trigger
-- was disabled or dropped, or if the partition was added after the last call of fence.protect.
create or replace view fence.status as
select
    part.relation as protected,
    pg_catalog.convert_from(
        pg_catalog.btrim(t.tgargs, '\x00'::pg_catalog.bytea),
        pg_catalog.getdatabaseencoding()) as resource,
    exists (
        select from pg_catalog.pg_trigger r
        where r.tgrelid = part.relation::pg_catalog.oid
            and r.tgname = 'fence_rows' and r.tgenabled = 'A'
    ) as checks_rows,
    exists (
        select from pg_catalog.pg_trigger r
        where r.tgrelid = part.relation::pg_catalog.oid
            and r.tgname = 'fence_truncate' and r.tgenabled = 'A'
    ) as rejects_truncate
from pg_catalog.pg_trigger t
cross join lateral (
    select t.tgrelid::pg_catalog.regclass
    union
    select relid from pg_catalog.pg_partition_tree(t.tgrelid)
) as part (relation)
where t.tgname = 'fence_rows' and t.tgparentid = '0'::pg_catalog.oid;

-- Revokes all rights of other roles on the tables and views above, which the owner's default
-- privileges may have granted.
do $$
declare
    granted record;
begin
    for granted in
        select c.oid::regclass as relation, acl.grantee
        from pg_catalog.pg_class c
        cross join lateral pg_catalog.aclexplode(c.relacl) as acl
        where c.relnamespace = 'fence'::regnamespace::oid and acl.grantee <> c.relowner
        group by 1, 2
    loop
        execute pg_catalog.format(
            'revoke all on %s from %s', granted.relation,
            case granted.grantee when 0::oid then 'public' else granted.grantee::regrole::text end);
    end loop;
end
$$;
