-- The storage server's own tables in PostgreSQL. The server applies this file itself.

-- What the server knows of each resource. A row is never deleted: the fence stays when the value goes, and rejects a
-- late writer. The fillfactor leaves space in each page, so that an update stays in it and touches no index.
create table storage.resource (
    resource text collate "C" not null,
    -- The fence: the highest token seen, and whose it is. Null where nothing was ever offered, which is possible only
    -- while the server does not enforce.
    token bigint,
    holder text not null,
    -- Counts accepted writes and deletes, and never starts again.
    version bigint not null,
    -- The value, null where there is none, with the token and holder that its write offered. A server that does not
    -- enforce may have accepted it below the fence.
    content_type text,
    bytes bytea,
    value_token bigint,
    value_holder text,
    -- The answers to the last numbered writes (Fencing-Sequence) under the row's fence: the hash of the fence, and for
    -- each answer the number, the answer, the resource's version and the hash of the request. Null if no write had a
    -- number. Under another fence, they are void.
    answers text,
    constraint resource_pkey primary key (resource)
) with (fillfactor = 70);

-- The common fence: every token up to it is stale, for every resource. After a restore, the fences are lower than the
-- tokens that were issued, and one row raises them all. There is at most one row. Only `storage-server fence raise`
-- writes it, under a lock that no change of a resource passes.
create table storage.common_fence (
    id smallint not null default 1,
    token bigint not null,
    constraint common_fence_pkey primary key (id),
    constraint common_fence_is_one_row check (id = 1),
    constraint common_fence_token_in_range check (token between 1 and 999999999999999)
);

-- Whether a server can read a fence: both columns, or no token and an empty holder.
create function storage.is_fence(token bigint, holder text)
returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    return coalesce(token between 1 and 999999999999999, holder = '')
        and octet_length(holder) <= 128
        and holder collate "C" !~ '[^!-~]';
end
$$;

-- Whether a server can read a row.
create function storage.is_readable(
    resource text, token bigint, holder text, version bigint,
    content_type text, bytes bytea, value_token bigint, value_holder text
)
returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    return octet_length(resource) between 1 and 512
        and version between 0 and 4611686018427387903
        and storage.is_fence(token, holder)
        and (content_type is null) = (bytes is null)
        and coalesce(content_type, '') collate "C" !~ '[^ -~]'
        and (value_holder is null) = (bytes is null)
        and storage.is_fence(value_token, coalesce(value_holder, ''));
end
$$;

grant execute on function storage.is_readable, storage.is_fence to public;

-- A server writes no other rows, so its own sessions skip the checks, which would cost a fifth of the time of a write.
-- A row that was restored or repaired by hand may break them: the server reports it, and `storage-server fence set`
-- repairs it.
alter table storage.resource
    add constraint resource_is_readable check (
        current_setting('storage.is_server', true) is not distinct from 'on'
        or storage.is_readable(
            resource, token, holder, version, content_type, bytes, value_token, value_holder)),
    add constraint resource_answers_are_readable check (
        current_setting('storage.is_server', true) is not distinct from 'on'
        or answers is null
        or answers collate "C" ~ ('^[0-9a-f]{32}( [1-9][0-9]{0,14}:'
            || '(created|replaced|deleted|version-mismatch):(0|[1-9][0-9]{0,18}):[0-9a-f]{32}){1,16}$'));
