-- The fence inside MariaDB: what the triggers of a protected table call. Apply 0001_fence.sql first, in the same way.
--
-- MariaDB has no procedure that can create triggers. So `fence.protect_sql`, in the next file, prints them.

set @fence_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

-- The tables that should be protected. A table that a tool has rebuilt has lost its triggers; its row is still here.
create table if not exists fence.protected (
    -- mydatabase.accounts
    protected varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin not null primary key,
    -- The column or expression; null before the triggers were created.
    resource varchar(2048) character set utf8mb4 collate utf8mb4_nopad_bin,
    mode enum('enforce', 'report') not null
) engine = InnoDB;

-- What was not rejected because the table is in the mode `report`. No row is ever updated, so that recording waits for
-- nobody.
create table if not exists fence.reports (
    id bigint not null auto_increment primary key,
    recorded_at timestamp(6) not null default current_timestamp(6),
    protected varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin not null,
    resource varchar(512) character set utf8mb4 collate utf8mb4_nopad_bin,
    code char(5) not null,
    message varchar(512) not null,
    user varchar(400) not null
) engine = InnoDB;

-- Sets `proven` to whether the present transaction has claimed the resource: see the table fence.proofs.
create or replace procedure fence.prove(
    in required varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin, out proven boolean
)
modifies sql data sql security definer
begin
    declare continue handler for 1452 begin end;
    declare continue handler for 1062 set proven = true;
    set proven = false;
    insert into fence.proofs (resource, claimed_on, slot) values (required, fence.session(), connection_id() & 16383);
end;

-- Nobody has claimed this resource. A MariaDB that proves the opposite has another order of checks than the fence
-- needs.
begin not atomic
    declare proven boolean;
    call fence.prove('', proven);
    if proven then
        signal sqlstate '45000' set message_text =
            'the fence can''t work on this version of MariaDB: it accepts a proof without comparing the foreign key';
    end if;
end;

-- Restores the claim that a fence had, or removes the fence if this transaction has just created it. After a deadlock,
-- the transaction has ended, and the fence may be another's.
create or replace procedure fence.take_back(
    in taken varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin, in presented_in bigint unsigned,
    in seen_by bigint unsigned, in seen_on bigint unsigned, in is_new boolean
)
modifies sql data sql security definer
begin
    if is_new then
        set statement foreign_key_checks = 0 for
        delete from fence.resources
        where resource = taken
            and (claimed_by = seen_by and claimed_on = seen_on
                or claimed_by = presented_in and claimed_on = fence.session());
    else
        set statement foreign_key_checks = 0 for
        update fence.resources set claimed_by = seen_by, claimed_on = seen_on
        where resource = taken and claimed_by = presented_in and claimed_on = fence.session();
    end if;
end;

-- Signals an error unless this transaction has claimed the resource, or can claim it with the token that it presents.
-- In the mode `report`, it records the rejection instead: at most ten of each session in a minute.
create or replace procedure fence.check(
    in protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    in required varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare proven boolean default false;
    declare seen_by, seen_on, presented_in, mark bigint unsigned;
    declare is_new boolean default false;
    declare code char(5);
    declare reason varchar(512);
    declare exit handler
        for sqlstate 'ZF001', sqlstate 'ZF002', sqlstate 'ZF003', sqlstate 'ZF004', sqlstate 'ZF006'
    begin
        -- A read that locks: it sees the present mode, and leaves no snapshot that a later claim would find outdated.
        if not exists (
            select 1 from fence.protected
            where protected = protected_table and mode = 'report' lock in share mode
        ) then
            resignal;
        end if;
        get diagnostics condition 1 code = returned_sqlstate, reason = message_text;
        if not @fence_minute <=> unix_timestamp() div 60 then
            select unix_timestamp() div 60, 0 into @fence_minute, @fence_recorded;
        end if;
        if @fence_recorded < 10 then
            select @fence_recorded + 1 into @fence_recorded;
            -- Without the checks, a first insert locks the whole table.
            set statement unique_checks = 1 for
            insert into fence.reports (protected, resource, code, message, user)
            values (protected_table, left(required, 512), coalesce(code, ''), coalesce(reason, ''), user());
        end if;
    end;
    -- 1. A replica would execute the statement, and its triggers would find no claim.
    if @@log_bin and @@sql_log_bin and @@binlog_format = 'STATEMENT' then
        signal sqlstate 'ZF006' set message_text =
            'a protected table needs binlog_format=ROW or MIXED: STATEMENT would stop replication';
    end if;
    -- Otherwise InnoDB wouldn't look at the foreign key, and every resource would be proven.
    if not @@foreign_key_checks then
        signal sqlstate 'ZF006' set message_text = 'a protected table needs foreign_key_checks = 1';
    end if;
    if not coalesce(octet_length(required) between 1 and 512, false) then
        signal sqlstate 'ZF003' set message_text = 'the resource of a row is malformed';
    end if;
    -- 2. Lock the fence first, so that nobody else claims before this transaction ends: a proof that fails locks a gap
    -- of its index, and two sessions could deadlock. `@fence_transaction` says whether a proof may succeed.
    select claimed_by, claimed_on into seen_by, seen_on from fence.resources where resource = required for update;
    if seen_on = fence.session() and seen_by = @fence_transaction then
        call fence.prove(required, proven);
    end if;
    set @fence_claimed = if(proven, required, null);
    -- 3. Claim with the presented token, if it was presented in this transaction. To prove that, the fence takes the
    -- number of the transaction that presented it, for a moment.
    if not proven and @fence_presented_in is not null and (not @@autocommit or @@in_transaction) then
        set presented_in = cast(@fence_presented_in as unsigned);
        if seen_by is null then
            -- Nothing is locked yet at READ COMMITTED, so another session may claim the resource first. A fence that
            -- this transaction has created has the mark.
            set mark = uuid_short();
            set statement foreign_key_checks = 0, unique_checks = 1 for
            insert into fence.resources values (required, 1, '', 0, mark) on duplicate key update token = token;
            select claimed_by, claimed_on into seen_by, seen_on
            from fence.resources where resource = required for update;
            set is_new = seen_on = mark;
        end if;
        if not is_new then
            call fence.check_snapshot(required, seen_by, seen_on);
        end if;
        begin
            -- A caller may catch the error and go on: it must not find the resource claimed.
            declare exit handler for sqlexception
            begin
                call fence.take_back(required, presented_in, seen_by, seen_on, is_new);
                resignal;
            end;
            set statement foreign_key_checks = 0 for
            update fence.resources set claimed_by = presented_in, claimed_on = fence.session()
            where resource = required;
            call fence.prove(required, proven);
        end;
        call fence.take_back(required, presented_in, seen_by, seen_on, is_new);
        if proven then
            call fence.claim_in(presented_in, required, @fence_token, @fence_holder);
        end if;
    end if;
    if not proven then
        signal sqlstate 'ZF004' set message_text =
            'a token is required, as the table is protected: call fence.claim or fence.present';
    end if;
end;

-- Checks both resources of a row: before an update and after it, and otherwise the same one. Triggers call it for each
-- row. So it proves the resource that this session claimed last right here: with the calls, a row would take 1.5 times
-- as long. `@fence_claimed` only says where to look, and the foreign key proves.
create or replace procedure fence.check_both(
    in protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    in required_before varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in required_after varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare proven boolean default false;
    if @fence_claimed = required_before and required_before = required_after and @@foreign_key_checks
        and not (@@log_bin and @@sql_log_bin and @@binlog_format = 'STATEMENT')
    then
        begin
            declare continue handler for 1452 begin end;
            declare continue handler for 1062 set proven = true;
            insert into fence.proofs (resource, claimed_on, slot)
            values (required_before, fence.session(), connection_id() & 16383);
        end;
    end if;
    if not proven then
        call fence.check(protected_table, required_before);
        if not required_before <=> required_after then
            call fence.check(protected_table, required_after);
        end if;
    end if;
end;

set session sql_mode = @fence_sql_mode;
