-- Guards for repairs, for restores, and against rows that no server can read.

-- The common fence: every token up to it is stale, for every resource. After a restore, the fences are
-- lower than the tokens that were issued, and one row raises them all. There is at most one row. Only
-- `storage-server fence raise` writes it, under a lock that no change of a resource passes.
create table storage.common_fence (
    id smallint not null default 1,
    token bigint not null,
    constraint common_fence_pkey primary key (id),
    constraint common_fence_is_one_row check (id = 1),
    constraint common_fence_token_in_range check (token between 1 and 999999999999999)
);

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

grant execute on function storage.is_readable, storage.is_fence to public;

-- A server writes no other rows, so its own sessions skip the check, which would cost a fifth of the
-- time of a write. Rows that were repaired by hand may break the rule, and must not stop this
-- migration, so only new and changed rows are checked. A server reports a row that breaks it, and
-- `storage-server fence set` repairs it.
alter table storage.resource
    drop constraint resource_token_in_range,
    drop constraint resource_value_token_in_range,
    drop constraint resource_version_counts_up,
    drop constraint resource_value_is_whole,
    add constraint resource_is_readable check (
        current_setting('storage.is_server', true) is not distinct from 'on'
        or storage.is_readable(
            resource, token, holder, version, content_type, bytes, value_token, value_holder)
    ) not valid;
