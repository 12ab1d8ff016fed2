-- Protecting tables, second version: replaces `protect` and `unprotect` of 0002_protect.sql. May be
-- applied again. Tables that version 1 protected stay as they are until `protect` is called again.

-- Protects a table: a change of a row fails unless the transaction has claimed the row's resource,
-- or can claim it with the token that it presents. In the mode `report` it passes, and the table
-- fence.reports says what would have failed.
--
-- The resource is an expression over the row, and over nothing else: a column, or for instance
-- 'order/' || id. Dates, times and bytes become text in one form under all settings of the session:
-- ISO, in UTC, in hex. The caller must own the table, and have the right to create functions in its
-- schema. Call it again for another expression, and for partitions that were added since: a new
-- partition inherits the checks of rows, but not the refusal of TRUNCATE.
create or replace function fence.protect(protected regclass, resource text, mode text)
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
    number_of_rows bigint;
    others text;
begin
    -- 1. Check that the table can be protected.
    if protected is null or coalesce(btrim(resource), '') = '' then
        raise exception using
            errcode = 'null_value_not_allowed', message = 'the table or the resource is missing';
    elsif (mode in ('enforce', 'report')) is not true then
        raise exception using
            errcode = 'invalid_parameter_value', message = 'the mode is ''enforce'' or ''report''';
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

    -- 2. Try the expression: a mistake in it must fail here, not in a later write. The newline ends
    -- a comment in the expression. This reads the whole table, and so comes before the lock.
    execute format(
        e'select count(*) from (select * from %s) as %I '
        'where (octet_length((%s\n)::text) between 1 and 512) is not true',
        protected, relation.relname, resource)
    into number_of_rows;
    if number_of_rows > 0 then
        raise warning using
            message = format(
                '%s of the rows of %s have no valid resource', number_of_rows, protected),
            hint = 'Nobody can change them while the table is protected.';
    end if;

    -- 3. Lock the table, at once in the strongest mode that is needed below: a later upgrade of the
    -- lock could deadlock with a writer.
    execute format('lock table %s in access exclusive mode', protected);
    -- 4. Remove the previous protection. A detached partition still has the trigger for TRUNCATE.
    if exists (
        select from pg_trigger
        where tgrelid = protected and tgname in ('fence_rows', 'fence_truncate')
    ) then
        perform fence.unprotect(protected);
    end if;

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
    -- before. It assigns the result of `verify`, because `perform` would double the cost.
    of_row = format(
        $body$
    if tg_op operator(pg_catalog.=) 'INSERT' then
        passes = fence.verify(%2$s);
    elsif tg_op operator(pg_catalog.=) 'DELETE' then
        passes = fence.verify(%1$s);
    else
        resource_before = %1$s;
        resource_after = %2$s;
        passes = fence.verify(resource_before);
        if (resource_after operator(pg_catalog.=) resource_before) is not true then
            passes = fence.verify(resource_after);
        end if;
    end if;
        $body$,
        format(of_row, 'old'), format(of_row, 'new'));
    if mode = 'report' then
        -- The owner of the table may use the schema fence. A writer perhaps may not yet.
        settings = 'security definer ' || settings;
        of_row = format(
            $body$
    declare
        message pg_catalog.text;
        detail pg_catalog.text;
    begin
        %s
    exception when others then
        get stacked diagnostics message = message_text, detail = pg_exception_detail;
        begin
            perform fence.report(tg_relid, sqlstate, message, detail);
        exception when others then
            raise warning 'fence.report failed: %%', sqlerrm;
        end;
    end;
            $body$,
            of_row);
    end if;
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
    passes pg_catalog.bool;
begin
    %s
    return null;
end
            $body$,
            of_row));
    -- 8. Create the triggers. A constraint trigger can't be replaced, as others could be by any role
    -- with the right TRIGGER.
    execute format(
        'create constraint trigger fence_rows after insert or update or delete on %s '
        'for each row execute function %s(%L)',
        protected, trigger_function, resource);
    for part in
        select protected union select relid from pg_partition_tree(protected)
    loop
        execute format(
            'create trigger fence_truncate before truncate on %s '
            'for each statement execute function fence.%s_truncate()',
            part, case mode when 'enforce' then 'refuse' else 'report' end);
        -- ALWAYS includes sessions whose session_replication_role is replica.
        execute format(
            'alter table %1$s enable always trigger fence_rows, '
            'enable always trigger fence_truncate',
            part);
    end loop;

    -- 9. Register the table, and remove tables that were dropped.
    delete from fence.protected p
    where not exists (select from pg_class c where c.oid = p.relation::oid);
    insert into fence.protected
    select tgrelid, protect.resource, protect.mode, fence.version(), fence.definition(tgfoid)
    from pg_trigger where tgrelid = protect.protected and tgname = 'fence_rows';

    -- 10. The trigger for TRUNCATE is no constraint, and so can be replaced.
    select string_agg(distinct case acl.grantee when 0 then 'public'
            else acl.grantee::regrole::text end, ', ') into others
    from (select protected union select relid from pg_partition_tree(protected)) as tree (relid)
    join pg_class c on c.oid = tree.relid
    cross join lateral aclexplode(c.relacl) as acl
    where acl.privilege_type = 'TRIGGER' and acl.grantee <> c.relowner;
    if others is not null then
        raise warning using
            message = format('%s may create triggers on %s', others, protected),
            hint = 'Revoke that right, which GRANT ALL includes: it can remove the refusal of TRUNCATE.';
    end if;
end
$$;

create or replace function fence.protect(protected regclass, resource text)
returns void
language plpgsql
as $$
begin
    perform fence.protect(protect.protected, protect.resource, 'enforce'::pg_catalog.text);
end
$$;

-- Refuses from now on what a table in the mode `report` only reported.
create or replace function fence.enforce(protected regclass)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.protect(p.relation, p.resource, 'enforce')
    from fence.protected p where p.relation = enforce.protected;
    if not found then
        raise exception using
            errcode = 'undefined_object', message = format('%s is not protected', protected);
    end if;
end
$$;

-- Removes the protection of a table. The fences stay.
create or replace function fence.unprotect(protected regclass)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    -- In place of a trigger of a registered table, there may be another of its name by now.
    registered boolean = exists (
        select from fence.protected p where p.relation = unprotect.protected);
    found_trigger record;
begin
    for found_trigger in
        select t.tgname, t.tgrelid::regclass as relation, case
                when p.pronamespace = c.relnamespace
                    and p.prosrc like '%-- Created by fence.protect.%'
                then p.oid::regprocedure end as function
        from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
        where t.tgname = 'fence_rows' and t.tgrelid = protected and t.tgparentid = 0
            and (registered or p.prosrc like '%-- Created by fence.protect.%')
        union all
        select t.tgname, t.tgrelid, null
        from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
        where t.tgname = 'fence_truncate'
            and (registered or p.pronamespace = 'fence'::regnamespace)
            and (t.tgrelid in (select relid from pg_partition_tree(protected))
                -- A detached partition still has it.
                or t.tgrelid = protected)
            -- A partition is freed with its table only.
            and not (select relispartition from pg_class where oid = protected)
    loop
        execute format('drop trigger %s on %s', found_trigger.tgname, found_trigger.relation);
        if found_trigger.function is not null then
            execute format('drop function %s', found_trigger.function);
        end if;
    end loop;
    if not found and not registered then
        raise exception using
            errcode = 'undefined_object', message = format('%s is not protected', protected);
    end if;
    delete from fence.protected p where p.relation = unprotect.protected;
end
$$;
