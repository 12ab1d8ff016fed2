-- The fence in PostgreSQL: which tables are protected or can be, how protection and fences are removed, and tables
-- whose check reports instead of rejecting. Not needed to see what stops a stale write. Apply 0003_protect.sql first.

-- Whether the current role may act as the owner of the table of this name. The table is looked up by the second part of
-- the name, which has an index.
create or replace function fence.owns(table_name text)
returns boolean language sql stable set search_path = pg_catalog, pg_temp as $$
    select exists (
        select from pg_class where relname = (parse_ident(table_name))[2] and pg_has_role(relowner, 'usage')
            and fence.name_of(oid) = table_name)
$$;

-- fence.protected has the tables that ought to be protected, by their names: a table that a tool has rebuilt has lost
-- its triggers, and the view fence.status says so. fence.reports has what tables in the mode `report` would have
-- rejected. By the policy, a role reads and writes only rows of tables that it owns: USING checks new rows, too. What
-- exists is left, and no table is locked.
do $$
declare
    path constant text = pg_catalog.current_setting('search_path');
    relation regclass;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    create table if not exists fence.protected (
        -- Schema and name, quoted where they must be: public.accounts
        relation text collate "C" not null,
        resource_column text not null,
        prefix text not null,
        mode text not null,
        -- What the column was when the table was protected.
        definition text not null,
        constraint protected_pkey primary key (relation)
    );
    create table if not exists fence.reports (
        -- A random key makes no writer wait for another.
        id uuid not null default gen_random_uuid(),
        at timestamptz not null,
        relation text collate "C" not null,
        code text not null,
        role text not null,
        application text not null,
        message text not null,
        detail text not null,
        constraint reports_pkey primary key (relation, at, id)
    );
    foreach relation in array array['fence.protected', 'fence.reports']::regclass[] loop
        if not (select relrowsecurity from pg_class where oid = relation) then
            execute format('alter table %s enable row level security', relation);
        end if;
        if not exists (
            select from pg_policy
            where polrelid = relation and polname = 'owner_of_the_table' and polpermissive and polcmd = '*'
                and polroles = '{0}' and polwithcheck is null
                and pg_get_expr(polqual, polrelid) = 'fence.owns(relation)')
        then
            execute format('drop policy if exists owner_of_the_table on %s', relation);
            execute format('create policy owner_of_the_table on %s using (fence.owns(relation))', relation);
        end if;
    end loop;
    perform set_config('search_path', path, true);
end
$$;

-- Raises an error if a table can't be protected, or not in this mode.
create or replace function fence.reject_unfit_table(protected regclass, mode text)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    relation pg_class;
begin
    select * into strict relation from pg_class where oid = protected;
    -- A partition is fit only if it has a fence_rows of its own: it was protected before it was attached.
    if relation.relkind not in ('r', 'p') or relation.relpersistence = 't'
        or relation.relnamespace = 'fence'::regnamespace
        or (relation.relispartition and not exists (
            select from pg_trigger where tgrelid = protected and tgname = 'fence_rows' and tgparentid = 0))
    then
        raise exception using errcode = 'wrong_object_type',
            message = format('%s is not a table that can be protected', protected),
            hint = 'Of a partition, protect the table that it is a part of.';
    elsif relation.relkind = 'r' and exists (select from pg_inherits where inhparent = protected) then
        raise exception using errcode = 'wrong_object_type',
            message = format('%s has children, which would stay unprotected', protected);
    elsif (mode in ('enforce', 'report')) is not true then
        raise exception using errcode = 'invalid_parameter_value', message = 'the mode is ''enforce'' or ''report''';
    elsif mode = 'report' and not has_schema_privilege(relation.relowner, 'fence', 'usage') then
        raise exception using errcode = 'insufficient_privilege',
            message = format('%s, who owns %s, may not use the schema fence', relation.relowner::regrole, protected),
            hint = format('grant usage on schema fence to %s', relation.relowner::regrole);
    end if;
end
$$;

-- The type of a column, and how it is generated. If that changes, rows may belong to other resources. The text of an
-- expression depends on settings, so the function sets them.
create or replace function fence.definition_of_column(protected regclass, resource_column text)
returns text language sql stable set search_path = pg_catalog, pg_temp set quote_all_identifiers = off
set datestyle = 'ISO, YMD' set intervalstyle = 'iso_8601' set timezone = 'UTC' set extra_float_digits = 1
set bytea_output = 'hex' set standard_conforming_strings = on as $$
    select concat_ws(' ', format_type(atttypid, atttypmod), pg_get_expr(adbin, adrelid))
    from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum and attgenerated <> ''
    where attrelid = protected and attname = resource_column and not attisdropped
$$;

-- Warns of roles that could replace the trigger for TRUNCATE, which can't be a constraint.
create or replace function fence.warn_of_trigger_right(protected regclass)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    roles text = (
        select string_agg(distinct grantee, ', ')
        from fence.parts(protected) as part (relid) join pg_class c on c.oid = part.relid
        cross join lateral fence.grantees(c.relacl, c.relowner, 'TRIGGER'::text) as grantee);
begin
    if roles is not null then
        raise warning using message = format('%s may create triggers on %s', roles, protected),
            hint = 'Revoke that right, which GRANT ALL includes: it can remove the rejection of TRUNCATE.';
    end if;
end
$$;

-- Drops fence_rows and fence_truncate of a table, and their function. Returns whether there were any. Ours are known by
-- the mark in the function's text. Of a registered table, it drops all triggers with these names: a role with the right
-- TRIGGER can replace fence_truncate.
create or replace function fence.remove_triggers(protected regclass)
returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    is_registered boolean = exists (
        select from fence.protected p where p.relation = fence.name_of(remove_triggers.protected::oid));
    found_trigger record;
    removed boolean = false;
begin
    -- If fence_rows is a copy of the parent's, the triggers belong to the parent.
    if exists (select from pg_trigger where tgrelid = protected and tgname = 'fence_rows' and tgparentid <> 0) then
        return false;
    end if;
    for found_trigger in
        select t.tgname, t.tgrelid::regclass as relation, t.tgfoid::regprocedure as function, ours.is_ours,
            pg_has_role(p.proowner, 'usage') as is_droppable
        from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        cross join lateral (select p.prosrc like '%-- Created by fence.protect.%') as ours (is_ours)
        where (ours.is_ours or is_registered) and (
            (t.tgname = 'fence_rows' and t.tgrelid = protected)
            or (t.tgname = 'fence_truncate' and t.tgrelid in (select fence.parts(protected))))
    loop
        removed = true;
        execute format('drop trigger %s on %s', found_trigger.tgname, found_trigger.relation);
        -- The function of an earlier owner of the table stays: the caller may not drop it.
        if found_trigger.is_ours and found_trigger.is_droppable
            and not exists (select from pg_trigger where tgfoid = found_trigger.function::oid)
        then
            execute format('drop function %s', found_trigger.function);
        end if;
    end loop;
    return removed;
end
$$;

-- Removes the protection of a table, and returns its name. The fences stay.
create or replace function fence.unprotect(protected regclass)
returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    removed boolean;
begin
    removed = fence.remove_triggers(protected);
    delete from fence.protected p where p.relation = fence.name_of(unprotect.protected::oid);
    if not found and not removed then
        raise exception using errcode = 'undefined_object', message = format('%s is not protected', protected);
    end if;
    return fence.name_of(protected::oid);
end
$$;

-- Removes the fences of all resources whose names begin with the prefix, and returns their number. The caller needs the
-- rights SELECT and DELETE on fence.fence. Afterwards any token is accepted, so no client may be left that holds one.
create or replace function fence.forget(prefix text)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    before text = current_setting('fence.remove', true);
    forgotten bigint;
begin
    if coalesce(prefix, '') = '' then
        raise exception using errcode = 'null_value_not_allowed', message = 'the prefix is missing';
    end if;
    perform set_config('fence.remove', 'on', true);
    delete from fence.fence where starts_with(resource, prefix);
    get diagnostics forgotten = row_count;
    perform set_config('fence.remove', coalesce(before, ''), true);
    return forgotten;
end
$$;

-- The end of a trigger's function that reports an error of the check instead of raising it. The statement does not
-- fail, unless it is cancelled. But it may wait for another transaction's claim, and SERIALIZABLE may fail the commit.
create or replace function fence.exception_clause()
returns text language sql immutable set search_path = pg_catalog, pg_temp as $text$ select $$
exception when others then
    declare
        message pg_catalog.text;
        detail pg_catalog.text;
    begin
        get stacked diagnostics message = message_text, detail = pg_exception_detail;
        ignored = fence.report(tg_relid::pg_catalog.regclass, sqlstate, message, detail);
    exception when others then
        raise warning using message = pg_catalog.concat('fence.report failed: ', sqlerrm);
    end;
    return null;
$$ $text$;

-- Records what a check would have rejected: about once a minute for each table, code, role and application, and about
-- sixty a minute for each table. Reports that are not committed yet don't count. These limits stop accidents: a writer
-- can hide its own reports (by the setting `reported` below), and use up the sixty by changing its application_name.
--
-- The trigger's function calls it with the rights of the table's owner: the policy of fence.reports lets nobody else
-- record anything. current_user is this owner, so the writer's role is read from the setting `role` or session_user.
create or replace function fence.report(relation regclass, code text, message text, detail text)
returns boolean language plpgsql
-- A writer may have set row_security to off. Then the policy would raise an error.
set search_path = pg_catalog, pg_temp set row_security = on set datestyle = 'ISO, YMD' as $$
#variable_conflict use_variable
declare
    -- The table that is protected: the partition, or the one ancestor whose fence_rows has no parent.
    name text = (
        select fence.name_of(coalesce(max(t.tgrelid), relation)) from pg_partition_ancestors(relation) as a (relid)
        join pg_trigger t on t.tgrelid = a.relid and t.tgname = 'fence_rows' and t.tgparentid = 0);
    role text = coalesce(nullif(current_setting('role'), 'none'), session_user);
    application text = current_setting('application_name');
    reported text = 'fence.reported_' || md5(concat_ws(e'\n', name, code, role, application));
    since timestamptz = clock_timestamp() - interval '1 minute';
begin
    -- 1. This session may have reported, or looked for, the same within the minute: a setting of it says when.
    if nullif(current_setting(reported, true), '')::timestamptz > since then
        return false;
    end if;
    perform set_config(reported, clock_timestamp()::text, false);
    -- 2. Or another session has, or there are sixty. A serializable transaction doesn't look, because that would make
    -- it conflict with other writers: then only step 1 limits the number.
    if current_setting('transaction_isolation') <> 'serializable' and (
        exists (
            select from fence.reports r
            where r.relation = name and r.at > since and r.code = code and r.role = role and r.application = application
        ) or 60 <= (select count(*) from fence.reports r where r.relation = name and r.at > since)
    ) then
        return false;
    end if;
    insert into fence.reports (at, relation, code, role, application, message, detail)
    values (clock_timestamp(), name, code, role, application, message, coalesce(detail, ''));
    return true;
end
$$;
