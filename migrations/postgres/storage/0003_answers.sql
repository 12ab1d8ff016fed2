-- The answers to the last numbered writes (Fencing-Sequence) under the row's fence: the hash of the
-- fence, and for each answer the number, the answer, the resource's version and the hash of the
-- request. Null if no write had a number. An older server that runs meanwhile leaves them as they are;
-- under another fence, they are void.
alter table storage.resource add column answers text;

-- As in 0002, a server's own sessions skip the check. Each row has a null here, so none has to be
-- checked, which would hold up the writes.
alter table storage.resource
    add constraint resource_answers_are_readable check (
        current_setting('storage.is_server', true) is not distinct from 'on'
        or answers is null
        or answers collate "C" ~ ('^[0-9a-f]{32}( [1-9][0-9]{0,14}:'
            || '(created|replaced|deleted|version-mismatch):(0|[1-9][0-9]{0,18}):[0-9a-f]{32}){1,16}$')
    ) not valid;
