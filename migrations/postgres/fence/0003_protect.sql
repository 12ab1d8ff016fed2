-- The fence in PostgreSQL: tables that reject writes without a valid token. Apply 0002_claim.sql first.
--
--     select fence.protect('accounts', 'account_id');

-- Whether the resource is a column of a type whose text depends on no setting of the session.
create or replace function fence.is_plain_column(protected regclass, resource text)
returns boolean language sql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
    select exists (
        select from pg_attribute
        where attrelid = protected and quote_ident(attname) = resource and not attisdropped
            and atttypid = any ('{text, varchar, bpchar, uuid, int2, int4, int8, numeric}'::regtype[])
    )
$$;

-- The body of a protected table's trigger function, which verifies the resource of the row before the change, and that
-- of the row after it if it is another. For the resource account_id it is, in short:
--
--     if tg_op = 'TRUNCATE' then
--         raise exception 'ZF005';
--     end if;
--     if tg_op <> 'INSERT' then
--         perform fence.verify(old.account_id::text);
--     end if;
--     if tg_op <> 'DELETE' and (new.account_id = old.account_id) is not true then
--         perform fence.verify(new.account_id::text);
--     end if;
--
-- The function runs under the writer's search_path, so every name in it has its schema. It assigns the result of
-- `verify`, because `perform` would double the cost.
create or replace function fence.trigger_body(protected regclass, resource text, mode text)
returns text language plpgsql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
declare
    table_name name = (select relname from pg_class where oid = protected);
    -- The expression may use the table's name for the row. The newline ends a comment at the end of the expression.
    resource_of_row text = case
        when fence.is_plain_column(protected, resource) then '%1$s.%2$s::pg_catalog.text'
        else e'(select (%2$s\n)::pg_catalog.text from (select %1$s.*) as %3$I)'
    end;
    checks text = format(
        $checks$
    if tg_op operator(pg_catalog.=) 'TRUNCATE' then
        raise exception using
            errcode = 'ZF005',
            message = pg_catalog.concat(tg_table_name, ' is protected, and cannot be truncated'),
            hint = 'Delete its rows under their tokens, or call fence.unprotect first.';
    end if;
    if tg_op operator(pg_catalog.<>) 'INSERT' then
        resource_before = %s;
        unread = fence.verify(resource_before);
    end if;
    if tg_op operator(pg_catalog.<>) 'DELETE' then
        resource_after = %s;
        if (resource_after operator(pg_catalog.=) resource_before) is not true then
            unread = fence.verify(resource_after);
        end if;
    end if;
        $checks$,
        format(resource_of_row, 'old', resource, table_name), format(resource_of_row, 'new', resource, table_name));
begin
    return format(
        $body$
#variable_conflict use_column
-- Created by fence.protect.
declare
    resource_before pg_catalog.text collate pg_catalog."C";
    resource_after pg_catalog.text collate pg_catalog."C";
    unread pg_catalog.bool;
begin
    %s
    return null;
end
        $body$,
        case mode when 'report' then fence.report_instead_of_rejecting(checks) else checks end);
end
$$;

-- Protects a table, and returns its name. From then on, a change of a row fails unless the transaction has claimed the
-- row's resource, or can claim it with the token that it presents. In the mode `report` the change passes, and
-- fence.reports says what would have failed. Call it again without the mode to enforce.
--
-- The resource is an expression that uses nothing but the row: a column, or for instance 'order/' || id. Dates,
-- times and bytes become text in one form under all settings of the session: ISO, in UTC, in hex. For that, the
-- trigger's function has the settings of this function, unless the resource is a plain column.
--
-- The caller needs the rights of the table's owner, who needs the right to create functions in its schema. Call it
-- again for another expression, for partitions that were added since, and after a tool has rebuilt the table.
create or replace function fence.protect(protected regclass, resource text, mode text default 'enforce')
returns text language plpgsql set array_nulls = on
set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set intervalstyle = 'iso_8601' set timezone = 'UTC'
set extra_float_digits = 1 set bytea_output = 'hex' set lc_monetary = 'C' set lc_numeric = 'C' set lc_time = 'C'
set standard_conforming_strings = on set transform_null_equals = off set quote_all_identifiers = off as $$
declare
    -- The settings in the head of this function, for the trigger's function.
    settings constant text = (
        select string_agg(format('set %s from current', split_part(setting, '=', 1)), ' ')
        from pg_proc cross join unnest(proconfig) as setting
        where pg_proc.oid = 'fence.protect(regclass, text, text)'::regprocedure);
    relation record;
    trigger_function text;
    number_of_rows bigint;
    part regclass;
    others text;
begin
    -- 1. Check that the table can be protected. The lock keeps out other calls, but no writer.
    if protected is null or coalesce(btrim(resource), '') = '' then
        raise exception using errcode = 'null_value_not_allowed', message = 'the table or the resource is missing';
    elsif (mode in ('enforce', 'report')) is not true then
        raise exception using errcode = 'invalid_parameter_value', message = 'the mode is ''enforce'' or ''report''';
    end if;
    execute format('lock table %s in share update exclusive mode', protected);
    select c.relname, c.relkind, c.relpersistence, c.relispartition, c.relowner::regrole as owner, n.nspname
    into strict relation
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = protected;
    if relation.relkind not in ('r', 'p') or relation.relispartition or relation.relpersistence = 't'
        or relation.nspname = 'fence'
    then
        raise exception using
            errcode = 'wrong_object_type', message = format('%s is not a table that can be protected', protected),
            hint = 'Of a partition, protect the table that it is a part of.';
    elsif relation.relkind = 'r' and exists (select from pg_inherits where inhparent = protected) then
        raise exception using
            errcode = 'wrong_object_type', message = format('%s has children, which would stay unprotected', protected);
    elsif mode = 'report' and not has_schema_privilege(relation.owner, 'fence', 'usage') then
        raise exception using errcode = 'insufficient_privilege',
            message = format('%s, who owns %s, may not use the schema fence to report', relation.owner, protected),
            hint = format('grant usage on schema fence to %s', relation.owner);
    end if;

    -- 2. Try the expression: a mistake in it must fail here, not in a later write. Only the table's owner may try it,
    -- because it may be a trap for anybody else, and so may the table's policies. Parsing alone evaluates parts of it.
    -- The trial reads the whole table, so it comes before writers are kept out.
    if relation.owner = quote_ident(current_user)::regrole then
        execute format(
            e'select count(*) from (select * from %s) as %I '
            'where (octet_length((%s\n)::text) between 1 and 512) is not true',
            protected, relation.relname, resource) into number_of_rows;
        if number_of_rows > 0 then
            raise warning using
                message = format('%s of the rows of %s have no valid resource', number_of_rows, protected),
                hint = 'Nobody can change them while the table is protected.';
        end if;
    elsif not fence.is_plain_column(protected, resource) then
        raise exception using errcode = 'insufficient_privilege',
            message = format('only %s, who owns %s, may protect it by an expression', relation.owner, protected),
            hint = 'Let the owner call fence.protect, or name a column of type text, integer, numeric or uuid.';
    end if;

    -- 3. Keep writers out, and remove the previous protection.
    execute format('lock table %s in access exclusive mode', protected);
    perform fence.remove_triggers(protected);

    -- 4. Create the function. A table that was renamed or dropped may have left its own behind. In the mode `report` it
    -- has the rights of the table's owner, because writers may have none in the schema fence yet. Only the owner
    -- keeps EXECUTE: others, to whom default privileges gave it, could make it a trigger of their tables.
    select format('%I.%I', relation.nspname, candidate) into trigger_function
    from generate_series(1, 1000) as place
    cross join lateral (select concat('fence_', nullif(place, 1) || '_', relation.relname)::name) as name (candidate)
    where to_regprocedure(format('%I.%I()', relation.nspname, candidate)) is null order by place limit 1;
    execute format(
        'create function %s() returns trigger language plpgsql %s %s as %L',
        trigger_function, case mode when 'report' then 'security definer' end,
        case when not fence.is_plain_column(protected, resource) then settings end,
        fence.trigger_body(protected, resource, mode));
    execute format('alter function %s() owner to %s', trigger_function, relation.owner);
    select string_agg(case acl.grantee when 0 then 'public' else acl.grantee::regrole::text end, ', ') into others
    from pg_proc p cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as acl
    where p.oid = (trigger_function || '()')::regprocedure and acl.grantee <> p.proowner;
    execute format('revoke all on function %s() from %s', trigger_function, coalesce(others, 'public'));

    -- 5. Create the triggers. The check of rows runs AFTER ROW, because another trigger may change the row before.
    -- It is a constraint trigger, which CREATE OR REPLACE TRIGGER can't replace. ENABLE ALWAYS includes sessions whose
    -- session_replication_role is replica.
    execute format(
        'create constraint trigger fence_rows after insert or update or delete on %s '
        'for each row execute function %s(%L)',
        protected, trigger_function, resource);
    for part in select protected union select relid from pg_partition_tree(protected) loop
        execute format(
            'create trigger fence_truncate before truncate on %s for each statement execute function %s()',
            part, trigger_function);
        execute format('alter table %s enable always trigger fence_rows, enable always trigger fence_truncate', part);
    end loop;
    insert into fence.protected values (fence.name_of(protected), resource, mode)
    on conflict on constraint protected_pkey do update set resource = excluded.resource, mode = excluded.mode;

    -- 6. Warn of roles that could replace the trigger for TRUNCATE, which can't be a constraint.
    select string_agg(distinct case grantee when 0 then 'public' else grantee::regrole::text end, ', ') into others
    from (select protected union select relid from pg_partition_tree(protected)) as tree (relid)
    join pg_class c on c.oid = tree.relid
    cross join lateral aclexplode(c.relacl) as acl
    where acl.privilege_type = 'TRIGGER' and acl.grantee <> c.relowner;
    if others is not null then
        raise warning using
            message = format('%s may create triggers on %s', others, protected),
            hint = 'Revoke that right, which GRANT ALL includes: it can remove the rejection of TRUNCATE.';
    end if;
    return fence.name_of(protected);
end
$$;

-- Removes the protection of a table, and returns the table's name. The fences stay.
create or replace function fence.unprotect(protected regclass)
returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    removed boolean = fence.remove_triggers(protected);
begin
    delete from fence.protected p where p.relation = fence.name_of(unprotect.protected);
    if not found and not removed then
        raise exception using errcode = 'undefined_object', message = format('%s is not protected', protected);
    end if;
    return fence.name_of(protected);
end
$$;

-- Drops the triggers and the function that `protect` created, and what replaced them. Returns whether there were any.
create or replace function fence.remove_triggers(protected regclass)
returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    registered boolean = exists (
        select from fence.protected p where p.relation = fence.name_of(remove_triggers.protected));
    found_trigger record;
    removed boolean = false;
begin
    for found_trigger in
        select t.tgname, t.tgrelid::regclass as relation, p.oid::regprocedure as function,
            p.prosrc like '%-- Created by fence.protect.%' as is_own
        from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where (registered or p.prosrc like '%-- Created by fence.protect.%')
            -- Not of a partition, which its parent protects. A detached one still has the trigger for TRUNCATE.
            and not (select relispartition from pg_class where oid = protected)
            and (t.tgname = 'fence_rows' and t.tgrelid = protected
                or t.tgname = 'fence_truncate'
                    and t.tgrelid in (select protected union select relid from pg_partition_tree(protected)))
    loop
        removed = true;
        execute format('drop trigger %s on %s', found_trigger.tgname, found_trigger.relation);
        if found_trigger.is_own and not exists (select from pg_trigger where tgfoid = found_trigger.function::oid) then
            execute format('drop function %s', found_trigger.function);
        end if;
    end loop;
    return removed;
end
$$;
