-- The fence inside MariaDB: the triggers that protect a table from writes without a valid token.
-- Apply 0002_database.sql first. This file may be applied again.
--
-- MariaDB has no procedure that can create triggers. So one prints them, to be executed:
--
--     call fence.protect_sql('mydatabase.accounts', 'account_id');
--
-- The view fence.status in the next file compares them with the triggers that exist.

set @fence_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

-- The tables that should be protected. A table that a tool has rebuilt has lost its triggers; its
-- row is still here.
create table if not exists fence.protected (
    -- mydatabase.accounts
    protected varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin not null primary key,
    -- The column or expression; null before the triggers were created.
    resource varchar(2048) character set utf8mb4 collate utf8mb4_nopad_bin,
    mode enum('enforce', 'report') not null
) engine = InnoDB;

-- What was not refused because the table is in the mode `report`. No row is ever updated, so that
-- recording waits for nobody.
create table if not exists fence.reports (
    id bigint not null auto_increment primary key,
    recorded_at timestamp(6) not null default current_timestamp(6),
    protected varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin not null,
    resource varchar(512) character set utf8mb4 collate utf8mb4_nopad_bin,
    code char(5) not null,
    message varchar(512) not null,
    user varchar(400) not null
) engine = InnoDB;

-- Signals an error unless this transaction has claimed the resource, or can claim it with the token
-- that it presents. Triggers that are written by hand may call it for each row.
create or replace procedure fence.require(
    in required varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare this_transaction varchar(80) character set ascii collate ascii_nopad_bin;
    -- A replica would execute the statement, and its triggers would find no claim.
    if @@log_bin and @@sql_log_bin and @@binlog_format = 'STATEMENT' then
        signal sqlstate 'ZF006' set message_text =
            'a protected table needs binlog_format=ROW or MIXED: STATEMENT would stop replication';
    end if;
    -- A session without a name has neither claimed nor presented.
    if @fence_session is not null then
        call fence.transaction(this_transaction);
    end if;
    -- The lock keeps others from claiming before this transaction ends.
    if not exists (
        select 1 from fence.resources
        where resource = required and claimed_by = this_transaction for update
    ) then
        if @fence_presented_in = this_transaction then
            call fence.claim(required, @fence_token, @fence_holder);
        elseif required is null then
            signal sqlstate 'ZF003' set message_text = 'the resource of a row is null';
        else
            signal sqlstate 'ZF004' set message_text =
                'a token is required, as the table is protected: call fence.claim or fence.present';
        end if;
    end if;
end;

-- Calls `require` for both resources of a row that may have moved from one to another.
create or replace procedure fence.require_both(
    in required_before varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in required_after varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    call fence.require(required_before);
    if not required_before <=> required_after then
        call fence.require(required_after);
    end if;
end;

-- What the triggers call that `protect_sql` prints. Calls `require`, and in the mode `report`
-- records a refusal instead of signalling it: at most ten of each session in a minute.
create or replace procedure fence.check(
    in protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    in required varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare refused char(5);
    declare reason varchar(512);
    declare exit handler
        for sqlstate 'ZF001', sqlstate 'ZF002', sqlstate 'ZF003', sqlstate 'ZF004', sqlstate 'ZF006'
    begin
        if not exists (
            select 1 from fence.protected where protected = protected_table and mode = 'report'
        ) then
            resignal;
        end if;
        get diagnostics condition 1 refused = returned_sqlstate, reason = message_text;
        if not @fence_minute <=> unix_timestamp() div 60 then
            select unix_timestamp() div 60, 0 into @fence_minute, @fence_recorded;
        end if;
        if @fence_recorded < 10 then
            select @fence_recorded + 1 into @fence_recorded;
            insert into fence.reports (protected, resource, code, message, user)
            values (
                protected_table, left(required, 512), coalesce(refused, ''), coalesce(reason, ''),
                user());
        end if;
    end;
    call fence.require(required);
end;

create or replace procedure fence.check_both(
    in protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    in required_before varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in required_after varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    call fence.check(protected_table, required_before);
    if not required_before <=> required_after then
        call fence.check(protected_table, required_after);
    end if;
end;

set session sql_mode = @fence_sql_mode;
