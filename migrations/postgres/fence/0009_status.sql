-- The protected tables, second version: replaces `status` of 0001_fence.sql. May be applied again.
--
-- The old columns come first, with their types, so that views over this one keep working. For the
-- same reason 0000_owner.sql has set the view aside, if it had all columns already.

do $$
begin
    if pg_catalog.to_regclass('fence.status_kept') is not null then
        drop view if exists fence.status;
        alter view fence.status_kept rename to status;
    end if;
end
$$;

-- One row for each table that ought to be protected, and for each of its partitions.
--
-- checks_rows and rejects_truncate are false if the trigger was dropped, disabled or replaced, if the
-- partition was added after the last call of fence.protect, and as long as the mode is report.
-- removable_by lists who could change that, besides superusers and the role that owns the schema
-- fence: the owners of the table, of its schema and of the trigger's function, and who has the right
-- TRIGGER.
create or replace view fence.status as
select
    part.relation as protected,
    p.resource collate pg_catalog."C" as resource,
    p.mode operator(pg_catalog.=) 'enforce'::pg_catalog.text and exists (
        select from pg_catalog.pg_trigger r
        where r.tgrelid = part.relation::pg_catalog.oid
            and r.tgname = 'fence_rows' and r.tgenabled = 'A'
            and r.tgtype operator(pg_catalog.=) 29::pg_catalog.int2
            and r.tgattr::pg_catalog.text operator(pg_catalog.=) ''::pg_catalog.text
            and r.tgqual is null
            and fence.definition(r.tgfoid) operator(pg_catalog.=) p.definition
    ) as checks_rows,
    p.mode operator(pg_catalog.=) 'enforce'::pg_catalog.text and exists (
        select from pg_catalog.pg_trigger r
        where r.tgrelid = part.relation::pg_catalog.oid
            and r.tgname = 'fence_truncate' and r.tgenabled = 'A'
            and r.tgtype operator(pg_catalog.=) 34::pg_catalog.int2
            and r.tgqual is null
            and r.tgfoid = 'fence.refuse_truncate()'::pg_catalog.regprocedure::pg_catalog.oid
    ) as rejects_truncate,
    p.mode,
    p.version,
    array(
        select case role
                when '0'::pg_catalog.oid then 'public' else role::pg_catalog.regrole::pg_catalog.text
            end
        from (
            select c.relowner
            union
            select n.nspowner from pg_catalog.pg_namespace n where n.oid = c.relnamespace
            union
            select f.proowner
            from pg_catalog.pg_trigger r join pg_catalog.pg_proc f on f.oid = r.tgfoid
            where r.tgrelid = c.oid and r.tgname = 'fence_rows'
            union
            select acl.grantee from pg_catalog.aclexplode(c.relacl) as acl
            where acl.privilege_type operator(pg_catalog.=) 'TRIGGER'::pg_catalog.text
        ) as roles (role)
        order by 1
    ) as removable_by
from fence.protected p
cross join lateral (
    select p.relation
    union
    select relid from pg_catalog.pg_partition_tree(p.relation)
) as part (relation)
join pg_catalog.pg_class c on c.oid = part.relation::pg_catalog.oid;
