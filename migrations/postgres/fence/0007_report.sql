-- Report only: what protected tables in this mode would have refused. May be applied again.

do $$
begin
    if pg_catalog.to_regclass('fence.reports') is null then
        create table fence.reports (
            at timestamptz not null,
            -- A name, because the table may be dropped later.
            relation text not null,
            code text not null,
            role text not null,
            application text not null,
            message text not null,
            detail text not null
        );
        perform fence.revoke_from_others('fence.reports'::pg_catalog.regclass);
        create index reports_by_relation on fence.reports (relation, at);
    end if;
end
$$;

-- Records what would have been refused: of the same table, code, role and application one a minute,
-- and of a table at most sixty a minute. It reads, but locks nothing, so no writer waits for another.
create or replace function fence.report(relation regclass, code text, message text, detail text)
returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    reported text = format('fence.reported_%s_%s', relation::oid, code);
    name text = (
        select format('%I.%I', nspname, relname)
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = relation);
    role text = coalesce(nullif(current_setting('role'), 'none'), session_user);
    application text = current_setting('application_name');
    since timestamptz = clock_timestamp() - interval '1 minute';
begin
    -- 1. This session may have recorded the same already.
    if nullif(current_setting(reported, true), '')::timestamptz > since or not exists (
        select from fence.protected p where p.relation = report.relation and p.mode = 'report'
    ) then
        return;
    end if;
    perform set_config(reported, clock_timestamp()::text, false);
    -- 2. Or another session. A serializable transaction doesn't look: it would conflict with the
    -- other writers, who have nothing else in common.
    if current_setting('transaction_isolation') <> 'serializable' and (
        exists (
            select from fence.reports r
            where r.relation = name and r.at > since and r.code = report.code
                and r.role = role and r.application = application
        ) or 60 <= (select count(*) from fence.reports r where r.relation = name and r.at > since)
    ) then
        return;
    end if;
    insert into fence.reports
    values (clock_timestamp(), name, code, role, application, message, coalesce(detail, ''));
end
$$;

-- The trigger for TRUNCATE in this mode.
create or replace function fence.report_truncate()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform fence.report(
        tg_relid, 'ZF005', format('%I is protected, and cannot be truncated', tg_table_name), '');
    return null;
end
$$;
