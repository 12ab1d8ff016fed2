-- The fence inside PostgreSQL: the triggers that protect a table from writes without a valid token.
-- Apply 0001_fence.sql first. This file may be applied again.
--
--     select fence.protect('accounts', 'account_id');
--
-- The view fence.status in 0001_fence.sql lists the protected tables.

-- Raises an error unless this transaction has claimed the resource, or can claim it with the token
-- that it presents. The trigger of a protected table calls it for each row.
create or replace function fence.require(resource text)
returns void
language plpgsql security definer
as $$
declare
    presents pg_catalog.bool = pg_catalog.current_setting('fence.transaction', true)
        operator(pg_catalog.=) pg_catalog.pg_current_xact_id()::pg_catalog.text;
begin
    if presents then
        -- The first statement of `claim`, copied: calling `claim` would double the cost.
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

    -- A row that was restored from another server may have this transaction's id by chance. So its
    -- xmin must not be older than the transaction, as it is in a row that the transaction wrote.
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
        hint = 'In the same transaction, call fence.claim(resource, token, holder) before you read'
            ', or fence.present(token, holder) before a write that depends on nothing read.';
end
$$;

-- Refuses TRUNCATE, which fires no trigger for the rows that it removes.
create or replace function fence.refuse_truncate()
returns trigger
language plpgsql
as $$
begin
    raise exception using
        errcode = 'ZF005',
        message = pg_catalog.format('%I is protected, and cannot be truncated', tg_table_name),
        hint = 'Delete its rows under their tokens, or call fence.unprotect first.';
end
$$;

-- Protects a table: a change of a row fails unless the transaction has claimed the row's resource,
-- or can claim it with the token that it presents.
--
-- The resource is an expression over the row, and over nothing else: a column, or for instance
-- 'order/' || id. Dates, times and bytes become text in one form under all settings of the session:
-- ISO, in UTC, in hex. The caller must own the table, and have the right to create functions in its
-- schema. Call it again for another expression, and for partitions that were added since: a new
-- partition inherits the checks of rows, but not the refusal of TRUNCATE.
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
    -- 1. Check that the table can be protected.
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

    -- 2. Lock the table, at once in the strongest mode that is needed below: a later upgrade of the
    -- lock could deadlock with a writer.
    execute format('lock table %s in access exclusive mode', protected);
    -- 3. Remove the previous protection. A detached partition still has the trigger for TRUNCATE.
    if exists (
        select from pg_trigger
        where tgrelid = protected and tgname in ('fence_rows', 'fence_truncate')
    ) then
        perform fence.unprotect(protected);
    end if;
    -- 4. Try the expression: a mistake in it must fail here, not in a later write. The newline ends
    -- a comment in the expression.
    execute format(
        e'select (%s\n)::text from (select * from %s) as %I limit 0',
        resource, protected, relation.relname);

    -- 5. Find a free name for the trigger's function: a table that was renamed or dropped may have
    -- left its function behind.
    select format('%I.%I', relation.nspname, candidate) into strict trigger_function
    from generate_series(1, 1000) as place
    cross join lateral (
        select ('fence_' || coalesce(nullif(place, 1) || '_', '') || relation.relname)::name
    ) as name (candidate)
    where not exists (
        select from pg_proc where pronamespace = relation.relnamespace and proname = candidate
    )
    order by place limit 1;
    -- 6. Turn the row's resource into text. For a column of these types no setting matters. All
    -- other expressions are evaluated under fixed settings.
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
    -- 7. Create the function. It runs AFTER ROW, because another trigger may still change the row
    -- before.
    execute format(
        'create function %s() returns trigger language plpgsql %s as %L',
        trigger_function, settings,
        format(
            $body$
#variable_conflict use_column
-- Created by fence.protect.
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
    -- 8. Create the triggers.
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
        -- ALWAYS includes sessions whose session_replication_role is replica.
        execute format(
            'alter table %1$s enable always trigger fence_rows, '
            'enable always trigger fence_truncate',
            part);
    end loop;
end
$$;

-- Removes the protection of a table. The fences stay.
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
        -- A detached partition still has the trigger for TRUNCATE.
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
