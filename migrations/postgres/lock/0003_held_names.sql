-- Which locks are held. May be applied again.

-- Returns the names, each on a line of its own, of up to 100 locks that are held, whose names have
-- this prefix and follow `after`; null if there are none. No name has a line break.
create or replace function fenced_lock.held_names(prefix text, after text, out names text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    select string_agg(held.name, e'\n') into held_names.names
    from (
        select l.name
        from fenced_lock.lock l
        where l.name > held_names.after and l.name >= held_names.prefix
            and starts_with(l.name, held_names.prefix)
            and l.holder is not null and l.expires_at > clock_timestamp()
        order by l.name limit 100
    ) as held;
end
$$;

grant execute on function fenced_lock.held_names(text, text) to public;
