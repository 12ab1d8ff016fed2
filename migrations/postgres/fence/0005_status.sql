-- The fence in PostgreSQL: what there is to see. Not needed to see what stops a stale write.

-- The names in a view are resolved when it is created.
do $$
begin
    perform pg_catalog.set_config('fence.search_path', pg_catalog.current_setting('search_path'), true);
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
end
$$;

-- The fences. A client that knows a holder can claim in its name. So the view shows 8 characters of a long one, and
-- none of a short one.
create or replace view fence.fences as
select resource, token,
    case when holder = '' then '' when length(holder) < 16 then '...' else left(holder, 8) || '...' end as holder
from fence.fence;

-- One row for each table that is protected or should be, if it exists, and for each table that inherits from it,
-- partitions included. `problem` is null if all is well: migrations/README.md explains the other values. The trigger
-- for rows, and its function's text, settings, owner and mode, are compared with what `protect` creates, and the column
-- with what it was. Of a table that is not registered, column and prefix are null, and no comparison with them is true.
-- Other triggers of the table are not looked at, nor what is not committed yet.
--
-- removable_by lists who could remove the protection, besides superusers and the role that owns the schema fence: the
-- owners of the table, of its schema and of the trigger's function, and who has the right TRIGGER.
create or replace view fence.status as
with recursive
check_of_rows as (
    -- All triggers of this name, whichever role created them.
    select t.tgrelid, t.tgfoid, t.tgparentid, p.proowner, p.proconfig, p.prosrc,
        -- In the mode report, the function has its owner's rights.
        case when p.prosecdef then 'report' else 'enforce' end as mode,
        -- A constraint, checked at once, in all sessions, for all columns, under no condition.
        t.tgconstraint <> 0 and not t.tgdeferrable and t.tgenabled = 'A' and t.tgattr::text = '' and t.tgqual is null
            and t.tgtype = 29 /* after insert, update or delete, for each row */ as is_intact
    from pg_trigger t join pg_proc p on p.oid = t.tgfoid
    where t.tgname = 'fence_rows'
),
-- Tables that are registered, or have our check, or both.
root as (
    select c.oid, c.relowner, p.resource_column, p.prefix, p.definition, coalesce(p.mode, r.mode) as mode,
        p.relation is not null as is_registered
    from pg_class c
    left join fence.protected p on p.relation = fence.name_of(c.oid)
    -- Not the triggers that a partition has of its parent.
    left join check_of_rows r on r.tgrelid = c.oid and r.tgparentid = 0
        and r.prosrc like '%-- Created by fence.protect.%'
    where p.relation is not null or r.tgrelid is not null
),
-- They and all that inherits from them.
tree as (
    select oid as root_oid, oid from root
    union
    select tree.root_oid, i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
)
select
    fence.name_of(c.oid) as protected,
    root.resource_column collate "C" as resource_column,
    root.prefix collate "C" as prefix,
    root.mode collate "C" as mode,
    case
        when actual.tgrelid is null then 'missing'
        when not actual.is_intact or actual.mode <> root.mode or actual.proowner <> root.relowner
            or actual.prosrc <> fence.trigger_body(root.resource_column, root.prefix, root.mode)
            or actual.proconfig is not null
            or root.definition is distinct from fence.definition_of_column(root.oid::regclass, root.resource_column)
            then 'different'
        when not exists (
            select from pg_trigger t
            where t.tgrelid = c.oid and t.tgname = 'fence_truncate' and t.tgenabled = 'A'
                and t.tgtype = 34 /* before truncate, for each statement */ and t.tgqual is null
                and t.tgfoid = actual.tgfoid
        ) then 'truncate'
        when not root.is_registered then 'unregistered'
    end as problem,
    array(
        select owner::regrole::text
        from unnest(array[c.relowner, n.nspowner, actual.proowner]) as owner where owner is not null
        union
        select fence.grantees(c.relacl, c.relowner, 'TRIGGER'::text) order by 1
    ) as removable_by
from tree
join root on root.oid = tree.root_oid
join pg_class c on c.oid = tree.oid
join pg_namespace n on n.oid = c.relnamespace
left join check_of_rows actual on actual.tgrelid = c.oid;

do $$ begin perform set_config('search_path', current_setting('fence.search_path'), true); end $$;
