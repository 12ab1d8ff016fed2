-- The fence inside PostgreSQL, 13 or newer. It may be applied again.
--
--     psql --set ON_ERROR_STOP=1 --single-transaction --file 0001_fence.sql
--
-- A transaction claims its resources, each with the token of the lock that guards it, then reads,
-- then writes:
--
--     begin;
--     select fence.claim('alice', 34, 'me');
--     select balance from accounts where account_id = 'alice';
--     update accounts set balance = 70 where account_id = 'alice';
--     commit;
--
-- A refusal is an error with a SQLSTATE of its own, whose detail is a JSON object:
--
--     ZF001  stale             {"resource", "token", "highest_token"}
--     ZF002  holder conflict   {"resource", "token", "highest_token"}
--     ZF003  malformed         {"resource", "token"}
--     ZF004  token required    {"resource"}
--     ZF005  truncate refused
--
-- What is guaranteed, and what is not, is told in migrations/README.md.
--
-- `claim` and `require` run with the rights of who installed them, in the session of whoever calls
-- them. They name the schema of all they use, operators included, which keeps out what the caller's
-- search_path might put in its place; setting a search_path of their own would cost more than that.

create schema if not exists fence;

-- The fences. A row is never deleted, and its token never falls. Only the functions below write here,
-- and they check what they write: check constraints would cost a claim 5 % of its speed. The
-- fillfactor leaves room in each page, so that an update stays in it and touches no index.
create table if not exists fence.fence (
    resource text collate "C" not null,
    token bigint not null,
    holder text collate "C" not null,
    -- The transaction that claimed it last.
    claimed_by xid8 not null,
    constraint fence_pkey primary key (resource)
) with (fillfactor = 50);

-- Those of the rule's decisions that accept, where there is a fence. Being plain SQL, it becomes a part
-- of each statement that uses it.
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

-- Advances the fence of a resource inside the caller's transaction, and holds it until that ends; or
-- raises a refusal.
--
-- The row is written even where the fence stays what it is. Without that, a transaction that reads
-- from an older snapshot (REPEATABLE READ, SERIALIZABLE) could claim after the latest write and yet
-- not see it; so it fails with 40001.
create or replace function fence.claim(resource text, token bigint, holder text default '')
returns void
language plpgsql security definer
as $$
begin
    update fence.fence f
    set token = claim.token, holder = claim.holder, claimed_by = pg_catalog.pg_current_xact_id()
    -- Whatever the collation of the column that the caller took them from.
    where f.resource operator(pg_catalog.=) claim.resource collate pg_catalog."C"
        and fence.accepts(f.token, f.holder, claim.token, claim.holder collate pg_catalog."C")
        and f.claimed_by operator(pg_catalog.<>) pg_catalog.pg_current_xact_id();
    if not found then
        perform fence.claim_otherwise(
            claim.resource collate pg_catalog."C", claim.token, claim.holder);
    end if;
end
$$;

-- Claims where there may be no fence yet, or one that refuses, or one that this transaction has
-- claimed already.
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

    perform from fence.fence f
    where f.resource = claim_otherwise.resource and f.token = claim_otherwise.token
        and f.holder = claim_otherwise.holder and f.claimed_by = pg_current_xact_id()
        -- And is not a row that was restored: see `require`.
        and age(f.xmin) <= age(pg_current_xact_id()::xid);
    if found then
        return;
    end if;

    insert into fence.fence as f values (resource, token, holder, pg_current_xact_id())
    on conflict on constraint fence_pkey do update
    set token = excluded.token, holder = excluded.holder, claimed_by = excluded.claimed_by
    where fence.accepts(f.token, f.holder, excluded.token, excluded.holder);
    if found then
        return;
    end if;

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
        hint = 'A resource is a text of 1 to 512 bytes, a token a number from 1 to 999999999999999, '
            'and a holder up to 128 characters of visible ASCII.';
end
$$;

-- Sets what this transaction offers for the rows of protected tables that it writes without having
-- claimed their resources.
create or replace function fence.present(token bigint, holder text default '')
returns void
language plpgsql
as $$
begin
    if fence.accepts(0, null, present.token, present.holder) is not true then
        perform fence.refuse_malformed('any', present.token);
    end if;
    -- With the transaction's id, as a setting of the session, left by somebody else, has none.
    perform
        pg_catalog.set_config(
            'fence.transaction', pg_catalog.pg_current_xact_id()::pg_catalog.text, true),
        pg_catalog.set_config('fence.token', present.token::pg_catalog.text, true),
        pg_catalog.set_config('fence.holder', present.holder, true);
end
$$;

-- Passes where this transaction has claimed the resource, or can claim it with what it presents.
create or replace function fence.require(resource text)
returns void
language plpgsql security definer
as $$
declare
    presents pg_catalog.bool = pg_catalog.current_setting('fence.transaction', true)
        operator(pg_catalog.=) pg_catalog.pg_current_xact_id()::pg_catalog.text;
begin
    if presents then
        -- The first statement of `claim`. Calling that instead would cost as much again.
        update fence.fence f
        set token = pg_catalog.current_setting('fence.token')::pg_catalog.int8,
            holder = pg_catalog.current_setting('fence.holder'),
            claimed_by = pg_catalog.pg_current_xact_id()
        where f.resource operator(pg_catalog.=) require.resource
            and fence.accepts(
                f.token, f.holder,
                pg_catalog.current_setting('fence.token')::pg_catalog.int8,
                pg_catalog.current_setting('fence.holder'))
            and f.claimed_by operator(pg_catalog.<>) pg_catalog.pg_current_xact_id();
        if found then
            return;
        end if;
    end if;

    -- A row that was restored from another server may have the id of this transaction by chance;
    -- the version of the row that this transaction wrote is no older than the transaction.
    perform from fence.fence f
    where f.resource operator(pg_catalog.=) require.resource
        and f.claimed_by operator(pg_catalog.=) pg_catalog.pg_current_xact_id()
        and pg_catalog.age(f.xmin) operator(pg_catalog.<=)
            pg_catalog.age(pg_catalog.pg_current_xact_id()::pg_catalog.xid);
    if found then
        return;
    end if;

    if presents then
        perform fence.claim_otherwise(
            require.resource,
            pg_catalog.current_setting('fence.token')::pg_catalog.int8,
            pg_catalog.current_setting('fence.holder'));
        return;
    end if;
    if require.resource is null then
        perform fence.refuse_malformed(require.resource, null);
    end if;
    raise exception using
        errcode = 'ZF004',
        message = pg_catalog.format(
            'a token is required for %L, as the table is protected', require.resource),
        detail = pg_catalog.json_build_object('resource', require.resource),
        hint = 'In the same transaction, call fence.claim(resource, token, holder) before you read, '
            'or fence.present(token, holder) before a write that depends on nothing read.';
end
$$;

-- Refuses a TRUNCATE, which would remove rows without telling which.
create or replace function fence.refuse_truncate()
returns trigger
language plpgsql
as $$
begin
    raise exception using
        errcode = 'ZF005',
        message = pg_catalog.format('%I is protected, and is not truncated', tg_table_name),
        hint = 'Delete its rows under their tokens, or call fence.unprotect first.';
end
$$;

-- Makes a table refuse every change of a row whose resource this transaction can't claim.
--
-- The resource is an expression over the row, and over nothing else: a column, or for instance
-- 'order/' || id. Dates, times and bytes become text in one way, whatever the session's settings: ISO,
-- in UTC, in hex. The caller must own the table, and may create functions in its schema. May be called
-- again, with another expression, or for partitions that were added since: they inherit the checks of
-- rows, but not the refusal of TRUNCATE.
create or replace function fence.protect(protected regclass, resource text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    relation record;
    trigger_function text;
    of_row text;
    settings text;
    part regclass;
begin
    if protected is null or coalesce(btrim(resource), '') = '' then
        raise exception using
            errcode = 'null_value_not_allowed', message = 'the table or the resource is missing';
    end if;
    select c.relname, c.relkind, c.relispartition, c.relnamespace, n.nspname into strict relation
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.oid = protected;
    if relation.relkind not in ('r', 'p') or relation.nspname = 'fence' then
        raise exception using
            errcode = 'wrong_object_type',
            message = format('%s is not a table that can be protected', protected);
    elsif relation.relispartition then
        raise exception using
            errcode = 'wrong_object_type', message = format('%s is a partition', protected),
            hint = 'Protect the table that it is a part of.';
    elsif relation.relkind = 'r' and exists (select from pg_inherits where inhparent = protected)
    then
        raise exception using
            errcode = 'wrong_object_type',
            message = format('tables inherit from %s, and would not be protected', protected);
    end if;

    -- As strong as the strongest that is needed: who asks for more later can deadlock with a writer.
    execute format('lock table %s in access exclusive mode', protected);
    -- A partition that was detached still has the second.
    if exists (
        select from pg_trigger
        where tgrelid = protected and tgname in ('fence_rows', 'fence_truncate')
    ) then
        perform fence.unprotect(protected);
    end if;
    -- The newline ends a comment in the expression. A mistake in it is found here, not by a writer.
    execute format(
        e'select (%s\n)::text from (select * from %s) as %I limit 0',
        resource, protected, relation.relname);

    -- The first name that is free: a table that was renamed or dropped may have left one taken.
    select format('%I.%I', relation.nspname, candidate) into strict trigger_function
    from generate_series(1, 1000) as place
    cross join lateral (
        select ('fence_' || coalesce(nullif(place, 1) || '_', '') || relation.relname)::name
    ) as name (candidate)
    where not exists (
        select from pg_proc where pronamespace = relation.relnamespace and proname = candidate
    )
    order by place limit 1;
    -- The text of these types depends on no setting, and so a column of them is taken as it is.
    select '%s.' || replace(resource, '%', '%%') || '::pg_catalog.text', '' into of_row, settings
    from pg_attribute
    where attrelid = protected and quote_ident(attname) = resource and not attisdropped
        and atttypid in (
            'text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'uuid'::regtype,
            'int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'numeric'::regtype);
    if not found then
        of_row = format(
            e'(select (%s\n)::pg_catalog.text from (select %%s.*) as %I)',
            replace(resource, '%', '%%'), replace(relation.relname, '%', '%%'));
        settings = $settings$
            set search_path = pg_catalog, pg_temp
            set datestyle = 'ISO, YMD' set intervalstyle = 'iso_8601' set timezone = 'UTC'
            set extra_float_digits = 1 set bytea_output = 'hex'
            set lc_monetary = 'C' set lc_numeric = 'C' set lc_time = 'C'
        $settings$;
    end if;
    execute format(
        'create function %s() returns trigger language plpgsql %s as %L',
        trigger_function, settings,
        format(
            $body$
#variable_conflict use_column
-- Made by fence.protect. AFTER ROW, as other triggers may still change the row before.
declare
    resource_before pg_catalog.text collate pg_catalog."C";
    resource_after pg_catalog.text collate pg_catalog."C";
begin
    if tg_op operator(pg_catalog.<>) 'INSERT' then
        resource_before = %s;
        perform fence.require(resource_before);
    end if;
    if tg_op operator(pg_catalog.<>) 'DELETE' then
        resource_after = %s;
        if (resource_after operator(pg_catalog.=) resource_before) is not true then
            perform fence.require(resource_after);
        end if;
    end if;
    return null;
end
            $body$,
            format(of_row, 'old'), format(of_row, 'new')));
    execute format(
        'create trigger fence_rows after insert or update or delete on %s '
        'for each row execute function %s(%L)',
        protected, trigger_function, resource);

    for part in
        select protected union select relid from pg_partition_tree(protected)
    loop
        execute format(
            'create trigger fence_truncate before truncate on %s '
            'for each statement execute function fence.refuse_truncate()',
            part);
        -- Always, also in a session whose session_replication_role is replica.
        execute format(
            'alter table %1$s enable always trigger fence_rows, '
            'enable always trigger fence_truncate',
            part);
    end loop;
end
$$;

-- Takes the protection away. The fences stay.
create or replace function fence.unprotect(protected regclass)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    part regclass;
    trigger_function regprocedure;
begin
    select tgfoid into trigger_function
    from pg_trigger where tgrelid = protected and tgname = 'fence_rows' and tgparentid = 0;
    if not found and not exists (
        -- What is left on a partition that was detached.
        select from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.oid = protected and not c.relispartition and t.tgname = 'fence_truncate'
    ) then
        raise exception using
            errcode = 'undefined_object', message = format('%s is not protected', protected);
    end if;
    for part in
        select tgrelid from pg_trigger
        where tgname = 'fence_truncate' and tgrelid in (
            select protected union select relid from pg_partition_tree(protected)
        )
    loop
        execute format('drop trigger fence_truncate on %s', part);
    end loop;
    if trigger_function is not null then
        execute format('drop trigger fence_rows on %s', protected);
        execute format('drop function %s', trigger_function);
    end if;
end
$$;

-- The protected tables, each partition in a row of its own. Where a column is false, somebody has
-- disabled or dropped the trigger, or has added the partition since fence.protect was called.
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
    ) as refuses_truncate
from pg_catalog.pg_trigger t
cross join lateral (
    select t.tgrelid::pg_catalog.regclass
    union
    select relid from pg_catalog.pg_partition_tree(t.tgrelid)
) as part (relation)
where t.tgname = 'fence_rows' and t.tgparentid = '0'::pg_catalog.oid;

-- The fences and their highest tokens. As a holder's name is the proof of holding, it shows only its
-- beginning, and of a short one nothing.
create or replace view fence.fences as
select resource, token,
    case
        when holder = '' then ''
        when pg_catalog.length(holder) < 16 then '...'
        else pg_catalog."left"(holder, 8) || '...'
    end as holder
from fence.fence;

-- Nobody but the owner has rights here, whatever the owner's default privileges grant.
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
