-- The fence in PostgreSQL: tables whose check reports instead of rejecting. Not needed to see what stops a stale write.
-- Apply 0003_protect.sql first.

-- What such tables would have rejected. The random key makes no writer wait for another. A role reads and writes the
-- reports of its own tables only, as in fence.protected.
do $$
declare
    path constant text = pg_catalog.current_setting('search_path');
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    create table if not exists fence.reports (
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
    if not (select relrowsecurity from pg_class where oid = 'fence.reports'::regclass) then
        alter table fence.reports enable row level security;
    end if;
    if not exists (select from pg_policy where polrelid = 'fence.reports'::regclass and polname = 'owner_of_the_table')
    then
        create policy owner_of_the_table on fence.reports using (fence.owns(relation));
    end if;
    perform set_config('search_path', path, true);
end
$$;

-- The end of a trigger's function that reports an error of the check instead of raising it. The statement does not
-- fail, unless it is cancelled. But the check may wait for another claim, and SERIALIZABLE may fail the commit.
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
-- can hide its own reports by the setting of step 1, and use up the sixty by changing its application_name.
--
-- The trigger's function calls it with the rights of the table's owner: the policy of fence.reports lets nobody else
-- record anything. So the writer's role is read from the setting `role`, or from the start of its session.
create or replace function fence.report(relation regclass, code text, message text, detail text)
returns boolean language plpgsql
-- With row_security off, a writer's session would get an error where the policy applies.
set search_path = pg_catalog, pg_temp set row_security = on set datestyle = 'ISO, YMD' as $$
#variable_conflict use_variable
declare
    -- The table of a partition, if that is the protected one. It may have another owner.
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
