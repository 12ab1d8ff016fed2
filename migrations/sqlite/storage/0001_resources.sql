-- The storage server's own tables. A resource has a fence from its first accepted offer on, and the
-- fence stays when the value is deleted: that is what refuses a late writer.

create table storage_fence (
    resource text primary key not null,
    -- The highest token seen, and whose it is; null where nothing was ever offered, which is
    -- possible only while the server does not enforce.
    token integer check (token between 1 and 999999999999999),
    holder text not null,
    -- Counts accepted writes and deletes, and never starts again.
    version integer not null check (version >= 0)
) strict, without rowid;

create table storage_value (
    resource text primary key not null references storage_fence (resource),
    content_type text not null,
    bytes blob not null,
    -- What the write was offered with, which a server that does not enforce may have accepted below
    -- the fence.
    token integer check (token between 1 and 999999999999999),
    holder text not null
) strict;
