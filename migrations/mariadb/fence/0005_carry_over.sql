-- The fence inside MariaDB: carries the fences of 0001_fence.sql over from the application's
-- database, which must be the selected one. Apply 0004_status.sql first. This file may be applied
-- again.
--
-- No program may call fence.claim before this file has run in every database with the old fence.
-- Then an older token is accepted at no moment, also if this file stops halfway, and if
-- 0001_fence.sql is applied again:
--
-- - First, every claim of the old table becomes a claim in the database `fence`, too, which must
--   accept it as well. Creating these triggers waits for the transactions that have claimed.
-- - Then the fences are copied. A fence of the same name never goes down.
-- - Then the old procedures call the new ones. Their grants stay, and triggers that call them work.

set @fence_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

create or replace trigger fence_carry_insert after insert on fence
for each row call fence.claim(new.resource, new.token, new.holder);

-- A refused claim has changed nothing in the row, and must not claim here.
create or replace trigger fence_carry_update after update on fence
for each row
begin
    if not (new.token = old.token and new.holder = old.holder and new.claimed_by = old.claimed_by)
    then
        call fence.claim(new.resource, new.token, new.holder);
    end if;
end;

-- MariaDB assigns from left to right: the token comes last.
insert into fence.resources
select resource, token, holder, uuid() from fence
on duplicate key update
    claimed_by = if(
        value(token) > fence.resources.token, value(claimed_by), fence.resources.claimed_by),
    holder = if(value(token) > fence.resources.token, value(holder), fence.resources.holder),
    token = greatest(value(token), fence.resources.token);

create or replace procedure fence_claim(
    in claimed varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_token varchar(64) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_holder varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
call fence.claim(claimed, offered_token, offered_holder);

create or replace procedure fence_present(
    in offered_token varchar(64) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_holder varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
reads sql data sql security definer
call fence.present(offered_token, offered_holder);

create or replace procedure fence_require(
    in required varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
call fence.require(required);

create or replace procedure fence_require_both(
    in required_before varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in required_after varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
call fence.require_both(required_before, required_after);

drop function if exists fence_transaction;

-- The old table is empty from here on. It stays, with its triggers: 0001_fence.sql, applied again,
-- would otherwise create one without.
delete from fence;

-- The number of the last of these files that was applied.
create or replace function fence.version()
returns int
deterministic no sql sql security definer
return 5;

set session sql_mode = @fence_sql_mode;
