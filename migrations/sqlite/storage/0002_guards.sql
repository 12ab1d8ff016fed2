-- Guards for repairs, for restores, and against rows that no server can read.

-- The common fence: every token up to it is stale, for every resource. After a restore, the fences are
-- lower than the tokens that were issued, and one row raises them all. There is at most one row. Only
-- `storage-server fence raise` and `restore` write it.
create table storage_common_fence (
    id integer primary key not null check (id = 1),
    token integer not null check (token between 1 and 999999999999999)
) strict;

-- A server writes no other rows. SQLite adds no check constraint to a table that exists, so triggers
-- check new and changed rows.
create trigger storage_resource_insert after insert on storage_resource
when new.holder glob '*[^!-~]*' or length(new.holder) > 128
    or new.value_holder glob '*[^!-~]*' or length(new.value_holder) > 128
    or (new.token is null and new.holder <> '')
    or (new.value_token is null and new.value_holder <> '')
    or new.version > 4611686018427387903
    or new.content_type glob '*[^ -~]*'
    or length(cast(new.resource as blob)) not between 1 and 512
begin
    select raise(abort, 'no server can read this row: change fences with `storage-server fence set`');
end;

-- This one runs at nearly every write of a server, where patterns cost too much. It finds the usual
-- mistakes: a space, another alphabet, a holder that is too long or has no token.
create trigger storage_resource_update
after update of token, holder, value_token, value_holder on storage_resource
when instr(new.holder, ' ') or instr(new.value_holder, ' ')
    or length(new.holder) <> length(cast(new.holder as blob))
    or length(new.value_holder) <> length(cast(new.value_holder as blob))
    or length(new.holder) > 128 or length(new.value_holder) > 128
    or (new.token is null and new.holder <> '')
    or (new.value_token is null and new.value_holder <> '')
begin
    select raise(abort, 'no server can read this row: change fences with `storage-server fence set`');
end;

create trigger storage_resource_rename after update of resource on storage_resource
when length(cast(new.resource as blob)) not between 1 and 512
begin
    select raise(abort, 'no server can read this row: a name has 1 to 512 bytes');
end;
