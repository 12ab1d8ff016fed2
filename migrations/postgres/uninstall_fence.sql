-- Removes the fence from PostgreSQL, and nothing else: the protection of all tables, and what the files in fence/
-- created. It fails, and removes nothing, if anything else is in the schema or depends on it. The role that installed
-- the fence applies it, if it owns all protected tables, or a superuser. It is one statement, and so one transaction:
--
--     psql mydatabase --file uninstall_fence.sql

do $$
declare
    leftover regprocedure;
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

    -- 1. Free the tables, also those that were renamed, and partitions that were detached.
    perform fence.unprotect(relation::regclass)
    from (
        select to_regclass(relation) as relation from fence.protected
        union
        select t.tgrelid from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where t.tgname in ('fence_rows', 'fence_truncate') and t.tgparentid = 0
            and p.prosrc like '%-- Created by fence.protect.%'
    ) as leftover
    join pg_class c on c.oid = relation
    where not exists (
        select from pg_trigger where tgrelid = relation and tgname = 'fence_rows' and tgparentid <> 0);

    -- 2. Tables that were dropped have left their functions behind.
    for leftover in
        select p.oid from pg_proc p
        where p.prosrc like '%-- Created by fence.protect.%' and p.prorettype = 'trigger'::regtype
            and pg_has_role(p.proowner, 'usage')
            and not exists (select from pg_trigger where tgfoid = p.oid)
    loop
        execute format('drop function %s', leftover);
    end loop;

    -- 3. Drop what the files created.
    drop view fence.status, fence.fences;
    drop table fence.fence, fence.protected, fence.reports;
    drop function
        fence.malformed, fence.accepts, fence.is_written_here, fence.claim, fence.claim_or_reject, fence.reject_claim,
        fence.reject_malformed, fence.present, fence.verify, fence.reject_removal, fence.forget, fence.name_of,
        fence.grantees, fence.revoke_all, fence.owns, fence.protect, fence.unprotect, fence.reject_unfit_table,
        fence.problem_of_column, fence.create_trigger_function, fence.trigger_body, fence.parts, fence.remove_triggers,
        fence.warn_of_trigger_right, fence.definition_of_column, fence.exception_clause, fence.report, fence.version;
    drop schema fence;
end
$$;
