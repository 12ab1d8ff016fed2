-- When a lock may have been granted. May be applied again.
--
-- A missing row starts at this time of the client: below all tokens of a lost table if it is no Unix
-- time in milliseconds. A counter that starts too high can never be lowered.

create trigger if not exists fenced_lock_since before insert on fenced_lock
when new.since_ms is not null
begin
    select raise(
        abort,
        'fenced_lock: since_ms must be the Unix time in milliseconds, from 2020 to a year from now')
    where new.since_ms
        not between 1577836800000 and (julianday('now') - 2440587.5) * 86400000 + 31536000000;
end;
