-- Guards for repairs, for restores, and against rows that no server can read.

-- The floor: every token up to it is stale, for every resource. After a restore, the fences are lower
-- than the tokens that were issued, and one row raises them all. There is at most one row. Only
-- `storage-server fence raise` writes it, under a lock that no change of a resource passes.
create table storage.floor (
    id smallint not null default 1,
    token bigint not null,
    constraint floor_pkey primary key (id),
    constraint floor_is_one_row check (id = 1),
    constraint floor_token_in_range check (token between 1 and 999999999999999)
);

-- A server writes no other rows. Rows that were repaired by hand may break these rules, and must not
-- stop this migration, so only new and changed rows are checked. A server reports a row that breaks
-- them, and `storage-server fence set` repairs it.
alter table storage.resource
    add constraint resource_name_has_1_to_512_bytes
        check (octet_length(resource) between 1 and 512) not valid,
    add constraint resource_holder_is_visible_ascii
        check (octet_length(holder) <= 128 and holder collate "C" !~ '[^!-~]') not valid,
    add constraint resource_holder_has_a_token
        check (token is not null or holder = '') not valid,
    add constraint resource_value_holder_is_visible_ascii
        check (octet_length(value_holder) <= 128 and value_holder collate "C" !~ '[^!-~]') not valid,
    add constraint resource_value_holder_has_a_token
        check (value_token is not null or value_holder = '') not valid;
