-- Which locks are held. May be applied again.

set @fenced_lock_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

-- Returns the names of up to 100 locks that are held, whose names have this prefix and follow
-- `in_after`, in their order; null if there are none. Each is on a line of its own in hexadecimal
-- digits, because any bytes may be a name.
create or replace procedure fenced_lock_held_names(
    in_prefix varbinary(512), in_after varbinary(512)
)
reads sql data
begin
    declare now_ms bigint
        default cast(floor(unix_timestamp(sysdate(6)) * 1000) as signed);
    -- A shorter answer would be cut off without an error.
    set session group_concat_max_len = 1048576;
    select convert(group_concat(hex(held.name) order by held.name separator '\n') using utf8mb4) as names
    from (
        select name from fenced_lock
        where name > in_after and name >= in_prefix and left(name, length(in_prefix)) = in_prefix
            and holder is not null and expires_at_ms > now_ms
        order by name limit 100
    ) as held;
end;

set session sql_mode = @fenced_lock_sql_mode;
