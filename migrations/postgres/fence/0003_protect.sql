-- The fence in PostgreSQL: tables that reject writes without a valid token. Apply 0002_claim.sql first.
--
--     select fence.protect('accounts', 'account_id');
--
-- This creates the function fence_accounts() beside the table, and two triggers that call it: fence_rows after each
-- insert, update or delete of a row, and fence_truncate. PostgreSQL copies fence_rows to partitions that are added
-- later, but not fence_truncate.

-- Whether the resource is a column of a type whose text depends on no setting of the session.
create or replace function fence.is_plain_column(protected regclass, resource text)
returns boolean language sql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
    select exists (
        select from pg_attribute
        where attrelid = protected and quote_ident(attname) = resource and not attisdropped
            and atttypid = any ('{text, varchar, bpchar, uuid, int2, int4, int8, numeric}'::regtype[])
    )
$$;

-- Tries the expression: a mistake in it must fail in `protect`, not in a later write.
--
-- A trial runs code of the table's owner: the expression, and the policies of the table. Even planning does, because
-- the planner calls immutable functions. So only the owner tries. Others, such as an administrator, may name only a
-- plain column, and nothing of the table is evaluated. Later, the expression runs as the writer, like any trigger.
create or replace function fence.try_resource(protected regclass, resource text)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    relation pg_class;
    number_of_rows bigint;
begin
    select * into strict relation from pg_class where oid = protected;
    -- A column that is a keyword needs quotes: `user` is the current user.
    if exists (
        select from pg_attribute
        where attrelid = protected and attname = lower(resource) and quote_ident(attname) <> attname) then
        raise exception using errcode = 'invalid_parameter_value',
            message = format('the column must be quoted: %I', lower(resource));
    end if;
    if relation.relowner = quote_ident(current_user)::regrole then
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
            message = format('only %s, who owns %s, may protect it by an expression', relation.relowner::regrole,
                protected),
            hint = 'Let the owner call fence.protect, or name a column of type text, integer, numeric or uuid.';
    end if;
end
$$;

-- The settings that the trigger's function of a table must have: those of `protect`, because the text of an expression
-- may depend on those of the session. Null for a plain column, which needs none. One is 'DateStyle=ISO, YMD'.
create or replace function fence.trigger_settings(protected regclass, resource text)
returns text[] language sql stable set search_path = pg_catalog, pg_temp as $$
    select proconfig from pg_proc
    where oid = to_regprocedure('fence.protect(regclass, text, text)')
        and not fence.is_plain_column(protected, resource)
$$;

-- The body of a trigger's function. It verifies the resource of the row before the change, and that of the row after it
-- if it is another. For the column account_id, and for the expression 'order/' || id of the table orders, it assigns:
--
--     resource_before = old.account_id::pg_catalog.text;
--     resource_before = (select ('order/' || id)::pg_catalog.text from (select old.*) as orders);
--
-- An assignment costs half as much as `perform`. use_column: a name in an expression means the column, no variable.
create or replace function fence.trigger_body(protected regclass, resource text, mode text)
returns text language plpgsql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off as $$
declare
    table_name name = (select relname from pg_class where oid = protected);
    -- The expression may call the row by the table's name. It may end with a comment, which the line break ends.
    template text = case
        when fence.is_plain_column(protected, resource) then '%1$s.%2$s::pg_catalog.text'
        else e'(select (%2$s\n)::pg_catalog.text from (select %1$s.*) as %3$I)'
    end;
begin
    return format(
        $body$
#variable_conflict use_column
-- Created by fence.protect.
declare
    resource_before pg_catalog.text collate pg_catalog."C";
    resource_after pg_catalog.text collate pg_catalog."C";
    ignored pg_catalog.bool;
begin
    if tg_op operator(pg_catalog.=) 'TRUNCATE' then
        raise exception using
            errcode = 'ZF005',
            message = pg_catalog.concat(tg_table_name, ' is protected, and cannot be truncated'),
            hint = 'Delete its rows under their tokens, or call fence.unprotect first.';
    end if;
    if tg_op operator(pg_catalog.<>) 'INSERT' then
        resource_before = %s;
        ignored = fence.verify(resource_before);
    end if;
    if tg_op operator(pg_catalog.<>) 'DELETE' then
        resource_after = %s;
        if (resource_after operator(pg_catalog.=) resource_before) is not true then
            ignored = fence.verify(resource_after);
        end if;
    end if;
    return null;
%s
end
        $body$,
        format(template, 'old', resource, table_name),
        format(template, 'new', resource, table_name),
        case mode when 'report' then fence.exception_clause() /* in 0004_tables.sql */ end);
end
$$;

-- Creates the trigger's function of a table, and returns its name: fence_accounts, or fence_2_accounts if a table that
-- was renamed or dropped has left the first behind. A long name is cut off. `protect` calls it under its settings.
create or replace function fence.create_trigger_function(protected regclass, resource text, mode text)
returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    -- Of each setting, `protect` has set the value, which is the current one here.
    settings constant text = (
        select string_agg(format('set %s from current', split_part(setting, '=', 1)), ' ')
        from unnest(fence.trigger_settings(protected, resource)) as setting);
    owner regrole;
    name text;
begin
    select c.relowner, format('%I.%I', n.nspname, candidate) into owner, name
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    cross join generate_series(1, 1000) as place
    cross join lateral (
        select (case place when 1 then 'fence_' else format('fence_%s_', place) end || c.relname)::name
    ) as choice (candidate)
    where c.oid = protected and to_regprocedure(format('%I.%I()', n.nspname, candidate)) is null
    order by place limit 1;
    -- In the mode `report` it runs as the table's owner. Writers may have no rights on the schema fence yet, and the
    -- policy of fence.reports lets only owners add to it.
    execute format(
        'create function %s() returns trigger language plpgsql %s %s as %L',
        name, case mode when 'report' then 'security definer' end, settings,
        fence.trigger_body(protected, resource, mode));
    execute format('alter function %s() owner to %s', name, owner);
    -- Others, to whom default privileges grant EXECUTE, could make it a trigger of their tables.
    perform fence.revoke_all(format('function %s()', name), proacl, proowner)
    from pg_proc where oid = (name || '()')::regprocedure;
    return name;
end
$$;

-- Protects a table, and returns its name. From then on, a change of a row fails unless the transaction has claimed the
-- row's resource, or can claim it with the token that it presents. In the mode `report` the change passes, and
-- fence.reports says what would have failed.
--
-- The resource is an expression that uses nothing but the row: a column, or for instance 'order/' || id. Dates, times
-- and bytes become text in one form, whatever a session has set: ISO, in UTC, in hex.
--
-- The caller needs the rights of the table's owner, who needs the right to create functions in its schema. Call it
-- again for another expression or mode; and in the same way for partitions that were added since, or after a tool has
-- rebuilt the table.
create or replace function fence.protect(protected regclass, resource text, mode text default 'enforce')
returns text language plpgsql
-- The trial runs under these settings, and create_trigger_function copies them to the function of each expression.
set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set intervalstyle = 'iso_8601' set timezone = 'UTC'
set extra_float_digits = 1 set bytea_output = 'hex' set lc_monetary = 'C' set lc_numeric = 'C' set lc_time = 'C'
set array_nulls = on set standard_conforming_strings = on set transform_null_equals = off
set quote_all_identifiers = off as $$
declare
    trigger_function text;
    part regclass;
    roles text;
begin
    -- 1. Check what can be checked. This lock keeps out other calls, but no writer. The trial reads the whole table.
    if protected is null or coalesce(btrim(resource), '') = '' then
        raise exception using errcode = 'null_value_not_allowed', message = 'the table or the resource is missing';
    elsif (mode in ('enforce', 'report')) is not true then
        raise exception using errcode = 'invalid_parameter_value', message = 'the mode is ''enforce'' or ''report''';
    end if;
    execute format('lock table %s in share update exclusive mode', protected);
    perform fence.reject_unfit_table(protected, mode); -- in 0004_tables.sql, like remove_triggers and parts
    perform fence.try_resource(protected, resource);

    -- 2. Keep writers out, and replace the previous protection.
    execute format('lock table %s in access exclusive mode', protected);
    perform fence.remove_triggers(protected);
    trigger_function = fence.create_trigger_function(protected, resource, mode);

    -- 3. Create the triggers. The check of rows runs AFTER ROW, because another trigger may change the row before. It
    -- is a constraint trigger, which CREATE OR REPLACE TRIGGER can't replace. Its argument is for fence.status. ENABLE
    -- ALWAYS includes sessions whose session_replication_role is replica. Some versions of PostgreSQL enable a trigger
    -- by its name in all partitions. So all are created before one is enabled.
    execute format(
        'create constraint trigger fence_rows after insert or update or delete on %s '
        'for each row execute function %s(%L)',
        protected, trigger_function, resource);
    for part in select fence.parts(protected) loop
        execute format(
            'create trigger fence_truncate before truncate on %s for each statement execute function %s()',
            part, trigger_function);
    end loop;
    for part in select fence.parts(protected) loop
        execute format('alter table %s enable always trigger fence_rows, enable always trigger fence_truncate', part);
    end loop;
    insert into fence.protected values (fence.name_of(protected::oid), resource, mode)
    on conflict on constraint protected_pkey do update set resource = excluded.resource, mode = excluded.mode;

    -- 4. Warn of roles that could replace the trigger for TRUNCATE, which can't be a constraint.
    select string_agg(distinct grantee, ', ') into roles
    from fence.parts(protected) as part (relid) join pg_class c on c.oid = part.relid
    cross join lateral fence.grantees(c.relacl, c.relowner, 'TRIGGER'::text) as grantee;
    if roles is not null then
        raise warning using message = format('%s may create triggers on %s', roles, protected),
            hint = 'Revoke that right, which GRANT ALL includes: it can remove the rejection of TRUNCATE.';
    end if;
    return fence.name_of(protected::oid);
end
$$;
