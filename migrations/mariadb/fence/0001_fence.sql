-- The fence inside MariaDB, 10.5 or newer. It may be applied again.
--
--     mariadb --delimiter=// mydatabase < 0001_fence.sql
--
-- Without the delimiter, the client would split the procedures at their semicolons.
--
-- A transaction claims its resources, then reads, then writes. It claims each resource with the
-- token of the lock that guards it:
--
--     begin;
--     call fence_claim('alice', 34, 'me');
--     select balance from accounts where account_id = 'alice';
--     update accounts set balance = 70 where account_id = 'alice';
--     commit;
--
-- A refusal is an error with a SQLSTATE of its own. Its message ends with a JSON object. Roll back
-- after it: the statement has changed nothing, but the transaction still holds the fence.
--
--     ZF001  stale            {"token", "highest_token"}
--     ZF002  holder conflict  {"token", "highest_token"}
--     ZF003  malformed; or MariaDB's own 22001, for a value that is too long for a parameter
--     ZF004  token required
--
-- migrations/README.md says what is guaranteed, and what is not.

-- A procedure keeps the mode in which it was created. This mode refuses values that don't fit,
-- instead of truncating or rounding them.
set @fence_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

-- The fences. A row is never deleted, and its token never falls. The collations compare bytes,
-- trailing spaces included.
create table if not exists fence (
    resource varchar(512) character set utf8mb4 collate utf8mb4_nopad_bin not null primary key,
    token bigint not null,
    holder varchar(128) character set ascii collate ascii_nopad_bin not null,
    -- The last transaction that claimed the resource.
    claimed_by varchar(80) character set ascii collate ascii_nopad_bin not null,
    constraint fence_resource_has_1_to_512_bytes check (octet_length(resource) between 1 and 512),
    constraint fence_token_in_range check (token between 1 and 999999999999999),
    constraint fence_holder_is_visible_ascii check (holder not regexp '[^!-~]')
) engine = InnoDB;

-- An id of the session's current transaction; null in autocommit. It is the session's random name
-- with the number of transactions that the session has begun and ended. The name differs from other
-- sessions', also from those before a restart of the server.
create or replace function fence_transaction()
returns varchar(80) character set ascii collate ascii_nopad_bin
not deterministic reads sql data sql security definer
begin
    declare transactions bigint;
    if @@autocommit and not @@in_transaction then
        return null;
    end if;
    if @fence_session is null then
        set @fence_session = uuid();
    end if;
    select sum(variable_value) into transactions
    from information_schema.session_status
    where variable_name in ('COM_BEGIN', 'COM_COMMIT', 'COM_ROLLBACK', 'COM_XA_START');
    return concat(@fence_session, ' ', transactions);
end;

-- Claims a resource: advances its fence inside the caller's transaction and holds it until the
-- transaction ends, or signals a refusal. The token is a text, so that no fraction is rounded away.
create or replace procedure fence_claim(
    in claimed varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_token varchar(64) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_holder varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare seen_token bigint;
    declare seen_holder varchar(128) character set ascii collate ascii_nopad_bin;
    declare refusal varchar(128);
    -- 1. Check the arguments.
    if not coalesce(octet_length(claimed) between 1 and 512, false) then
        signal sqlstate 'ZF003' set message_text = 'the resource is malformed';
    end if;
    -- The second pattern refuses a newline at the end, which `$` ignores.
    if not coalesce(
        offered_token regexp '^[1-9][0-9]{0,14}$' and offered_token not regexp '[^0-9]', false)
    then
        signal sqlstate 'ZF003' set message_text = 'the token is malformed';
    end if;
    if not coalesce(
        octet_length(offered_holder) <= 128 and offered_holder not regexp '[^!-~]', false)
    then
        signal sqlstate 'ZF003' set message_text = 'the holder is malformed';
    end if;

    -- 2. Insert the first fence, or apply the rule. MariaDB assigns from left to right: the token
    -- comes last, because the other two depend on its old value.
    insert into fence
    values (claimed, offered_token, offered_holder, coalesce(fence_transaction(), ''))
    on duplicate key update
        claimed_by = if(
            value(token) > token or value(token) = token and value(holder) = holder,
            value(claimed_by), claimed_by),
        holder = if(value(token) > token, value(holder), holder),
        token = greatest(value(token), token);

    -- 3. Read the row that the upsert has locked. A plain read may return an older version of it.
    select token, holder into seen_token, seen_holder
    from fence where resource = claimed for update;
    if seen_token > offered_token then
        set refusal = concat(
            'the token is stale {"token":', offered_token, ',"highest_token":', seen_token, '}');
        signal sqlstate 'ZF001' set message_text = refusal;
    elseif seen_holder <> offered_holder then
        set refusal = concat(
            'the token belongs to another holder {"token":', offered_token,
            ',"highest_token":', seen_token, '}');
        signal sqlstate 'ZF002' set message_text = refusal;
    end if;
end;

-- Presents a token and holder for this transaction's blind writes to protected tables. A written
-- row claims its resource with them, unless the transaction has already claimed the resource.
create or replace procedure fence_present(
    in offered_token varchar(64) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_holder varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
reads sql data sql security definer
begin
    set @fence_presented_in = fence_transaction();
    set @fence_token = offered_token;
    set @fence_holder = offered_holder;
end;

-- Signals an error unless this transaction has claimed the resource, or can claim it with the token
-- that it presents. The triggers that protect a table call it for each row:
--
--     create trigger accounts_fence_insert after insert on accounts
--     for each row call fence_require(new.account_id);
--
--     create trigger accounts_fence_update after update on accounts
--     for each row call fence_require_both(old.account_id, new.account_id);
--
--     create trigger accounts_fence_delete after delete on accounts
--     for each row call fence_require(old.account_id);
create or replace procedure fence_require(
    in required varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare this_transaction varchar(80) character set ascii collate ascii_nopad_bin
        default fence_transaction();
    -- The lock keeps other transactions from claiming before this one ends.
    if not exists (
        select 1 from fence
        where resource = required and claimed_by = this_transaction for update
    ) then
        if @fence_presented_in = this_transaction then
            call fence_claim(required, @fence_token, @fence_holder);
        else
            signal sqlstate 'ZF004'
            set message_text =
                'a token is required, as the table is protected: call fence_claim or fence_present';
        end if;
    end if;
end;

-- Calls `fence_require` for both resources of a row that may have moved from one to another.
create or replace procedure fence_require_both(
    in required_before varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in required_after varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    call fence_require(required_before);
    if not required_before <=> required_after then
        call fence_require(required_after);
    end if;
end;

set session sql_mode = @fence_sql_mode;
