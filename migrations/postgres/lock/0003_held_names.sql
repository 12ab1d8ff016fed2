-- Which locks are held. May be applied again.

-- Returns the names of up to 100 locks that are held, whose names have this prefix and follow `after`,
-- in their order; null if there are none. Each is on a line of its own, as UTF-8 in hexadecimal digits,
-- because a name may have a line break.
create or replace function fenced_lock.held_names(prefix text, after text, out names text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    select string_agg(encode(convert_to(held.name, 'UTF8'), 'hex'), e'\n' order by held.name)
    into held_names.names
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
