-- What the storage server knows of each resource. A row is never deleted: the fence stays when the
-- value goes, and that is what refuses a late writer.
create table storage_resource (
    resource text primary key not null,
    -- The fence: the highest token seen, and whose it is. Null where nothing was ever offered, which
    -- is possible only while the server does not enforce.
    token integer check (token between 1 and 999999999999999),
    holder text not null,
    -- Counts accepted writes and deletes, and never starts again.
    version integer not null check (version >= 0),
    -- The value, null where there is none, with the token and holder that its write offered. A server
    -- that does not enforce may have accepted it below the fence.
    content_type text,
    bytes blob,
    value_token integer check (value_token between 1 and 999999999999999),
    value_holder text,
    check ((content_type is null) = (bytes is null)),
    check ((value_holder is null) = (bytes is null))
) strict;
