-- Removing fences, which lets older tokens in again. May be applied again.

-- Refuses TRUNCATE and DELETE of the fences, as by a test that empties all tables.
create or replace function fence.refuse_removal()
returns trigger
language plpgsql
as $$
begin
    if pg_catalog.current_setting('fence.remove', true) operator(pg_catalog.=) 'on'::pg_catalog.text
    then
        return null;
    end if;
    raise exception using
        errcode = 'ZF006',
        message = 'fences are not removed with other data: tokens that are stale would be accepted',
        hint = 'Leave out the schema fence. To retire resources for good, call fence.forget(prefix), '
            'or begin with: set local fence.remove = ''on''';
end
$$;

do $$
begin
    if not exists (
        select from pg_catalog.pg_trigger
        where tgrelid = 'fence.fence'::pg_catalog.regclass::pg_catalog.oid
            and tgname = 'refuse_removal'
    ) then
        create trigger refuse_removal before delete or truncate on fence.fence
        for each statement execute function fence.refuse_removal();
        alter table fence.fence enable always trigger refuse_removal;
    end if;
end
$$;

-- Removes the fences of all resources whose name begins with the prefix, and returns their number.
-- The caller needs the right to delete from fence.fence. Afterwards any token is accepted again, so
-- no client may be left that holds one.
create or replace function fence.forget(prefix text)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    before text = current_setting('fence.remove', true);
    forgotten bigint;
begin
    if coalesce(prefix, '') = '' then
        raise exception using
            errcode = 'null_value_not_allowed', message = 'the prefix is missing';
    end if;
    perform set_config('fence.remove', 'on', true);
    -- In the order of the names, as claims should be, so that they don't deadlock.
    perform from fence.fence where starts_with(resource, prefix) order by resource for update;
    delete from fence.fence where starts_with(resource, prefix);
    get diagnostics forgotten = row_count;
    perform set_config('fence.remove', coalesce(before, ''), true);
    return forgotten;
end
$$;
