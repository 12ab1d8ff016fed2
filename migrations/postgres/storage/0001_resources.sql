-- The storage server's own tables. A resource has a fence from its first accepted offer on, and the
-- fence stays when the value is deleted: that is what refuses a late writer.

create schema if not exists storage;

-- The fillfactor leaves room in each page, so that an update stays in it and touches no index.
create table storage.fence (
    resource text collate "C" not null,
    -- The highest token seen, and whose it is; null where nothing was ever offered, which is
    -- possible only while the server does not enforce.
    token bigint,
    holder text not null,
    -- Counts accepted writes and deletes, and never starts again.
    version bigint not null,
    constraint fence_pkey primary key (resource),
    constraint fence_token_in_range check (token between 1 and 999999999999999),
    constraint fence_version_counts_up check (version >= 0)
) with (fillfactor = 70);

create table storage.value (
    resource text collate "C" not null,
    content_type text not null,
    bytes bytea not null,
    -- What the write was offered with, which a server that does not enforce may have accepted below
    -- the fence.
    token bigint,
    holder text not null,
    constraint value_pkey primary key (resource),
    constraint value_has_a_fence foreign key (resource) references storage.fence (resource),
    constraint value_token_in_range check (token between 1 and 999999999999999)
) with (fillfactor = 70);
