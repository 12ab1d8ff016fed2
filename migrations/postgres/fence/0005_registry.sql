-- The registry: which tables ought to be protected, and how. May be applied again.

-- The version of the fence. `protect` notes it for each table. Version 1 had no such function.
create or replace function fence.version()
returns integer
language sql immutable
as 'select 2';

-- What makes a function that function: all but its name and its owner.
create or replace function fence.definition(function oid)
returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select concat_ws(e'\n', l.lanname, p.prosecdef, p.proconfig::text, p.prosrc)
    from pg_proc p join pg_language l on l.oid = p.prolang
    where p.oid = definition.function
$$;

do $$
declare
    path pg_catalog.text = pg_catalog.current_setting('search_path');
begin
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    if to_regclass('fence.protected') is null then
        create table fence.protected (
            relation regclass not null,
            -- Null if somebody had replaced the trigger before the table was registered here.
            resource text,
            mode text not null check (mode in ('enforce', 'report')),
            version integer not null,
            -- Of the function behind the trigger.
            definition text,
            constraint protected_pkey primary key (relation)
        );
        perform fence.revoke_from_others('fence.protected');
        -- `protect` runs with the rights of the table's owner, who may write the table's row here.
        -- A row whose table was dropped is anybody's to remove.
        alter table fence.protected enable row level security;
        create policy owner_of_the_table on fence.protected using (coalesce(
            (select pg_has_role(relowner, 'usage') from pg_class where oid = relation::oid), true));

        -- Tables that an earlier version protected.
        insert into fence.protected
        select
            t.tgrelid,
            case t.tgnargs when 1
                then convert_from(btrim(t.tgargs, '\x00'::bytea), getdatabaseencoding()) end,
            'enforce', 1,
            case when p.pronamespace = c.relnamespace and p.proname like 'fence\_%'
                and p.prosrc like '%-- Created by fence.protect.%' then fence.definition(p.oid) end
        from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
        where t.tgname = 'fence_rows' and t.tgparentid = 0 and exists (
            select from pg_trigger other
            where other.tgrelid = t.tgrelid and other.tgname = 'fence_truncate'
        );
    end if;
    perform set_config('search_path', path, true);
end
$$;
