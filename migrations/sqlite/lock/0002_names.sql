-- Which names a lock may have: those that all clients can have. May be applied again.
--
-- They are 1 to 512 bytes of UTF-8 without control characters. Slashes separate segments, and none is
-- empty, `.` or `..`. SQLite can't check that a text is UTF-8.

create trigger if not exists fenced_lock_names before insert on fenced_lock
begin
    select raise(abort, 'fenced_lock: name must have 1 to 512 bytes')
    where length(cast(new.name as blob)) not between 1 and 512;
    -- A pattern ends at the character 0.
    select raise(abort, 'fenced_lock: name must have no control characters')
    where instr(new.name, char(0))
        or new.name glob format('*[%s-%s%s-%s]*', char(1), char(31), char(127), char(159));
    select raise(
        abort,
        'fenced_lock: name must have no segment, between slashes, that is empty, . or ..')
    where instr('/' || new.name || '/', '//')
        or instr('/' || new.name || '/', '/./')
        or instr('/' || new.name || '/', '/../');
end;
