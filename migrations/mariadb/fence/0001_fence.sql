-- The fence inside MariaDB, 10.5 or newer. It may be applied again.
--
--     mariadb --delimiter=// mydatabase < 0001_fence.sql
--
-- The delimiter keeps the client from cutting the procedures at their semicolons. A transaction claims
-- its resources, each with the token of the lock that guards it, then reads, then writes:
--
--     begin;
--     call fence_claim('alice', 34, 'me');
--     select balance from accounts where account_id = 'alice';
--     update accounts set balance = 70 where account_id = 'alice';
--     commit;
--
-- A refusal is an error with a SQLSTATE of its own, whose message ends with a JSON object. Roll back
-- after it: the statement has done nothing, but the transaction still holds the fence.
--
--     ZF001  stale            {"token", "highest_token"}
--     ZF002  holder conflict  {"token", "highest_token"}
--     ZF003  malformed; or MariaDB's own 22001, of what doesn't even fit a parameter
--     ZF004  token required
--
-- What is guaranteed, and what is not, is told in migrations/README.md.

-- Procedures keep the mode that they were made in: nothing is cut off or rounded silently.
set @fence_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

-- The fences. A row is never deleted, and its token never falls. The collations compare bytes, and
-- don't take trailing spaces for nothing.
create table if not exists fence (
    resource varchar(512) character set utf8mb4 collate utf8mb4_nopad_bin not null primary key,
    token bigint not null,
    holder varchar(128) character set ascii collate ascii_nopad_bin not null,
    -- The transaction that claimed it last.
    claimed_by varchar(80) character set ascii collate ascii_nopad_bin not null,
    constraint fence_resource_has_1_to_512_bytes check (octet_length(resource) between 1 and 512),
    constraint fence_token_in_range check (token between 1 and 999999999999999),
    constraint fence_holder_is_visible_ascii check (holder not regexp '[^!-~]')
) engine = InnoDB;

-- Names the transaction that the session is in; null where each statement is one of its own. A session
-- counts what begins and ends transactions; its random name tells it from others, and from those
-- before a restart.
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

-- Advances the fence of a resource inside the caller's transaction, and holds it until that ends; or
-- signals a refusal. The token comes as text, so that no fraction is rounded away.
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
    if not coalesce(octet_length(claimed) between 1 and 512, false) then
        signal sqlstate 'ZF003' set message_text = 'the resource is malformed';
    end if;
    -- To `$`, a newline at the end would be no character.
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

    -- Assigned from left to right: the token, which decides, comes last.
    insert into fence
    values (claimed, offered_token, offered_holder, coalesce(fence_transaction(), ''))
    on duplicate key update
        claimed_by = if(
            value(token) > token or value(token) = token and value(holder) = holder,
            value(claimed_by), claimed_by),
        holder = if(value(token) > token, value(holder), holder),
        token = greatest(value(token), token);

    -- The latest row, which is locked by now; a read without a lock might see an older one.
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

-- Sets what this transaction offers for the rows of protected tables that it writes without having
-- claimed their resources.
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

-- Passes where this transaction has claimed the resource, or can claim it with what it presents.
create or replace procedure fence_require(
    in required varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare this_transaction varchar(80) character set ascii collate ascii_nopad_bin
        default fence_transaction();
    -- The lock keeps others from claiming before this transaction ends.
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

-- The same for a row that may have moved from one resource to another.
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
