-- Removes the fence from PostgreSQL, and nothing else: the protection of all tables, and what the
-- files in fence/ created. It fails, and removes nothing, if anything else is in the schema or
-- depends on it. The role that installed the fence applies it:
--
--     psql --set ON_ERROR_STOP=1 --single-transaction --file uninstall_fence.sql

set local search_path = pg_catalog, pg_temp;

select fence.unprotect(protected)
from (
    select relation as protected from fence.protected
    union
    -- Partitions that were detached.
    select tgrelid::regclass from pg_trigger
    where tgname = 'fence_truncate' and tgparentid = 0
        and tgfoid in ('fence.refuse_truncate()'::regprocedure, 'fence.report_truncate()'::regprocedure)
) as leftover
join pg_class c on c.oid = protected
where not c.relispartition;

drop view fence.status, fence.fences;
drop function
    fence.claim, fence.claim_otherwise, fence.accepts, fence.refuse_malformed, fence.present,
    fence.require, fence.verify, fence.name_of_passed, fence.protect(regclass, text), fence.protect(regclass, text, text),
    fence.enforce, fence.unprotect, fence.refuse_truncate, fence.report_truncate, fence.report,
    fence.definition, fence.revoke_from_others, fence.version, fence.forget,
    fence.doctor;
drop table fence.fence, fence.protected, fence.reports;
drop table if exists fence.migrations;
drop sequence fence.secret;
drop function fence.refuse_removal;
drop schema fence;
