-- The fence in PostgreSQL: tables that reject writes without a valid token. Apply 0002_claim.sql first.
--
--     select fence.protect('accounts', 'account_id');
--     select fence.protect('orders', 'id', prefix => 'order/');
--
-- A row's resource is the text of a column, after the prefix: alice, order/7. The second call creates the function
-- fence_orders() beside the table, and two triggers that call it: fence_rows after each insert, update or delete of a
-- row, also by COPY, MERGE and a cascade of foreign keys, and fence_truncate. PostgreSQL copies fence_rows to
-- partitions that are added later, but not fence_truncate: until `protect` is called again, such a partition can be
-- truncated.
--
-- Nobody's SQL is evaluated: the column is a name, and the prefix a literal. If the column is renamed, writes fail.
-- `protect` reads and writes no row of the table. So an administrator may call it for a stranger's table, and none of
-- its triggers, defaults, policies, generated columns and types runs.

-- The problem of a column that can't name the resources of a table's rows. Null if it can. The text of its type must
-- depend on no setting. Otherwise two sessions would write one row under two fences, and neither would be rejected.
create or replace function fence.problem_of_column(protected regclass, resource_column text)
returns text language sql stable set search_path = pg_catalog, pg_temp as $$
    select case
        when attname is null then 'does not exist'
        when attgenerated = 'v' then 'is a virtual generated column, which is not computed for triggers'
        when atttypid <> all ('{text, varchar, bpchar, uuid, int2, int4, int8, numeric}'::regtype[])
            then format('has the type %s', format_type(atttypid, atttypmod))
    end
    from pg_class c
    left join pg_attribute on attrelid = c.oid and attname = resource_column and attnum > 0 and not attisdropped
    where c.oid = protected
$$;

-- The body of a trigger's function. It verifies the resource of the row before the change, and that of the row after it
-- if it is another. For the column id and the prefix order/, it assigns:
--
--     resource_before = 'order/'::pg_catalog.text operator(pg_catalog.||) old."id"::pg_catalog.text;
--
-- %L quotes the prefix, whatever standard_conforming_strings is. quote_all_identifiers makes %I quote each column,
-- because PL/pgSQL has keywords of its own, such as `begin`. In the mode `report`, %3$s is an exception clause, which
-- records the error instead; otherwise it is empty. An assignment costs half as much as `perform`.
create or replace function fence.trigger_body(resource_column text, prefix text, mode text)
returns text language plpgsql stable strict set search_path = pg_catalog, pg_temp set quote_all_identifiers = on as $$
begin
    return format(
        $body$
-- Created by fence.protect.
declare
    resource_before pg_catalog.text collate pg_catalog."C";
    resource_after pg_catalog.text collate pg_catalog."C";
    ignored pg_catalog.bool;
begin
    if tg_op operator(pg_catalog.=) 'TRUNCATE' then
        raise exception using errcode = 'ZF005',
            message = pg_catalog.concat(tg_table_name, ' is protected, and cannot be truncated'),
            hint = 'Delete its rows under their tokens, or call fence.unprotect first.';
    end if;
    if tg_op operator(pg_catalog.<>) 'INSERT' then
        resource_before = %1$L::pg_catalog.text operator(pg_catalog.||) old.%2$I::pg_catalog.text;
        ignored = fence.verify(resource_before);
    end if;
    if tg_op operator(pg_catalog.<>) 'DELETE' then
        resource_after = %1$L::pg_catalog.text operator(pg_catalog.||) new.%2$I::pg_catalog.text;
        if (resource_after operator(pg_catalog.=) resource_before) is not true then
            ignored = fence.verify(resource_after);
        end if;
    end if;
    return null;
%3$s
end
        $body$,
        prefix, resource_column, case mode when 'report' then fence.exception_clause() end);
end
$$;

-- Creates the trigger's function of a table, and returns its name: fence_orders, or fence_2_orders if a table that was
-- renamed or dropped has left the first behind. A long name is cut off at its end, so the number comes first.
create or replace function fence.create_trigger_function(protected regclass, body text, mode text)
returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    relation pg_class = (select c from pg_class c where c.oid = protected);
    name text;
begin
    for place in 1 .. 1000 loop
        name = format(
            '%s.%I', relation.relnamespace::regnamespace,
            format(case place when 1 then 'fence_%s' else 'fence_%2$s_%1$s' end, relation.relname, place)::name);
        exit when to_regprocedure(name || '()') is null;
    end loop;
    -- It runs as the writer, whose writes fail without USAGE on the schema fence. In the mode `report` it runs as the
    -- table's owner: writers may have no such rights yet, and the policy of fence.reports lets only owners add to it.
    execute format(
        'create function %s() returns trigger language plpgsql %s as %L',
        name, case mode when 'report' then 'security definer' end, body);
    execute format('alter function %s() owner to %s', name, relation.relowner::regrole);
    -- Others, to whom default privileges grant EXECUTE, could make it a trigger of their tables, and so write reports
    -- as this owner.
    perform fence.revoke_all(format('function %s()', name), proacl, proowner)
    from pg_proc where oid = (name || '()')::regprocedure;
    return name;
end
$$;

-- A table and its partitions, except those with a fence_rows of their own, and what is below them. They were protected
-- before they were attached, and keep their own protection: their fence_rows has no parent; the copies that PostgreSQL
-- makes have one. (`protect` of the table above fails until they are unprotected, because the name is taken.)
create or replace function fence.parts(protected regclass)
returns setof regclass language sql stable set search_path = pg_catalog, pg_temp as $$
    select protected
    union
    select relid from pg_partition_tree(protected)
    where not exists (
        select from pg_partition_ancestors(relid) as above (relid) join pg_trigger on tgrelid = above.relid
        where above.relid <> protected and tgname = 'fence_rows' and tgparentid = 0)
$$;

-- Protects a table, and returns its name. From then on, a change of a row fails unless the transaction has claimed the
-- row's resource, or can claim it with the token that it presents. In the mode `report` the change passes, and
-- fence.reports says what would have failed. The column is its exact name, without quotes.
--
-- The caller needs the rights of the table's owner, who needs the right to create functions in its schema. Call it
-- again to change the column, the prefix or the mode, after partitions were added, or after a tool rebuilt the table.
create or replace function fence.protect(
    protected regclass, resource_column text, mode text default 'enforce', prefix text default '')
returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    problem text;
    trigger_function text;
    part regclass;
begin
    -- 1. Check the table, before the lock and under it, and the column. From 0004_tables.sql: reject_unfit_table raises
    -- an error, remove_triggers drops what an earlier call has made, and the others record or warn.
    if protected is null or resource_column is null or prefix is null then
        raise exception using errcode = 'null_value_not_allowed', message = 'the table, column or prefix is null';
    elsif octet_length(prefix) > 511 then
        raise exception using errcode = 'invalid_parameter_value', message = 'the prefix is longer than 511 bytes';
    end if;
    perform fence.reject_unfit_table(protected, mode);
    execute format('lock table %s in access exclusive mode', protected);
    perform fence.reject_unfit_table(protected, mode);
    problem = fence.problem_of_column(protected, resource_column);
    if problem is not null then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('the column %L of %s %s', resource_column, protected, problem),
            hint = 'Name a column of type text, varchar, char, uuid, smallint, integer, bigint or numeric, exactly and '
                'without quotes. For composite names, add a stored generated column of type text.';
    end if;

    -- 2. Replace the previous protection. The check of rows runs AFTER ROW, because BEFORE triggers may change the row.
    -- It is a constraint trigger, because a role with the right TRIGGER can't replace one. It can't be deferred. That
    -- of TRUNCATE can't be one: warn_of_trigger_right warns of such roles.
    perform fence.remove_triggers(protected);
    trigger_function = fence.create_trigger_function(
        protected, fence.trigger_body(resource_column, prefix, mode), mode);
    execute format(
        'create constraint trigger fence_rows after insert or update or delete on %s '
        'for each row execute function %s()', protected, trigger_function);
    for part in select fence.parts(protected) loop
        execute format(
            'create trigger fence_truncate before truncate on %s for each statement execute function %s()',
            part, trigger_function);
    end loop;

    -- 3. Enable the triggers of the table and all its partitions, also in sessions whose session_replication_role is
    -- replica. Some versions enable a trigger by its name in all partitions at once, and fail if one lacks it. So all
    -- were created before.
    for part in select fence.parts(protected) loop
        execute format('alter table %s enable always trigger fence_rows, enable always trigger fence_truncate', part);
    end loop;

    -- 4. Register the table for fence.status. No trigger looks there.
    delete from fence.protected p where p.relation = fence.name_of(protect.protected::oid);
    insert into fence.protected values (
        fence.name_of(protected::oid), resource_column, prefix, mode,
        fence.definition_of_column(protected, resource_column));
    perform fence.warn_of_trigger_right(protected);
    return fence.name_of(protected::oid);
end
$$;
