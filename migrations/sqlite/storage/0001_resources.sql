-- The storage server's own tables in SQLite. The server applies this file itself.

-- What the server knows of each resource. A row is never deleted: the fence stays when the value goes, and rejects a
-- late writer.
create table storage_resource (
    resource text primary key not null,
    -- The fence: the highest token seen, and whose it is. Null where nothing was ever offered, which is possible only
    -- while the server does not enforce.
    token integer check (token between 1 and 999999999999999),
    holder text not null,
    -- Counts accepted writes and deletes, and never starts again.
    version integer not null check (version >= 0),
    -- The value, null where there is none, with the token and holder that its write offered. A server that does not
    -- enforce may have accepted it below the fence. A small one is in `bytes`. Of a large one, only the size is here, and
    -- the bytes are in `storage_large_value`: a claim writes this row, and must not write a large value with it.
    content_type text,
    large_bytes integer check (large_bytes > 0),
    value_token integer check (value_token between 1 and 999999999999999),
    value_holder text,
    -- The answers to the last numbered writes (Fencing-Sequence) under the row's fence: the hash of the fence, and for
    -- each answer the number, the answer, the resource's version and the hash of the request. Null if no write had a
    -- number. Under another fence, they are void.
    answers text check (length(answers) between 33 and 2000 and answers not glob '*[^-0-9a-z: ]*'),
    -- The last column: nothing has to be looked for behind the pages of a large value.
    bytes blob,
    check ((content_type is null) = (bytes is null and large_bytes is null)),
    check ((value_holder is null) = (content_type is null)),
    check (bytes is null or large_bytes is null)
) strict;

-- The large values, each with the version of its row. A write adds the new one in its transaction, and triggers delete the
-- old one.
create table storage_large_value (
    resource text not null,
    version integer not null,
    bytes blob not null,
    primary key (resource, version)
) strict;

create trigger storage_large_value_replaced after update of version, large_bytes on storage_resource
when old.large_bytes is not null and (new.large_bytes is null or new.version <> old.version)
begin
    delete from storage_large_value where resource = old.resource and version = old.version;
end;

create trigger storage_large_value_deleted after delete on storage_resource
when old.large_bytes is not null
begin
    delete from storage_large_value where resource = old.resource;
end;

create trigger storage_large_value_renamed after update of resource on storage_resource
when old.large_bytes is not null
begin
    update storage_large_value set resource = new.resource where resource = old.resource;
end;

-- The common fence: every token up to it is stale, for every resource. After a restore, the fences are lower than the
-- tokens that were issued, and one row raises them all. There is at most one row. Only `storage-server fence raise` and
-- `restore` write it.
create table storage_common_fence (
    id integer primary key not null check (id = 1),
    token integer not null check (token between 1 and 999999999999999)
) strict;

-- A server writes no other rows. Triggers check what the table's own constraints don't, because patterns cost too much
-- where nothing of the kind has changed.
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

-- This one runs at nearly every write of a server, and so has no patterns. It finds the usual mistakes: a space, another
-- alphabet, a holder that is too long or has no token.
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
