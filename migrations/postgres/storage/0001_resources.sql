-- What the storage server knows of each resource. A row is never deleted: the fence stays when the
-- value goes, and that is what refuses a late writer. The fillfactor leaves space in each page, so
-- that an update stays in it and touches no index.
create table storage.resource (
    resource text collate "C" not null,
    -- The fence: the highest token seen, and whose it is. Null where nothing was ever offered, which
    -- is possible only while the server does not enforce.
    token bigint,
    holder text not null,
    -- Counts accepted writes and deletes, and never starts again.
    version bigint not null,
    -- The value, null where there is none, with the token and holder that its write offered. A server
    -- that does not enforce may have accepted it below the fence.
    content_type text,
    bytes bytea,
    value_token bigint,
    value_holder text,
    constraint resource_pkey primary key (resource),
    constraint resource_token_in_range check (token between 1 and 999999999999999),
    constraint resource_value_token_in_range check (value_token between 1 and 999999999999999),
    constraint resource_version_counts_up check (version >= 0),
    constraint resource_value_is_whole check (
        (content_type is null) = (bytes is null) and (value_holder is null) = (bytes is null)
    )
) with (fillfactor = 70);
