-- The fence inside MariaDB: a database of its own, `fence`, with the fences and the claims. Apply
-- 0001_fence.sql before, and then the files after this one, in the same way. All of them may be
-- applied again.
--
-- In the application's database, where 0001_fence.sql put the fence, `grant … on mydatabase.*`
-- included the table, and a temporary table of its name replaced it inside the procedures. All
-- applications of a server share the database `fence`.
--
--     begin;
--     call fence.claim('alice', 34, 'me');
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
--     ZF006  a needed setting is missing: a write to a protected table with binlog_format=STATEMENT
--     40001  the transaction reads older state than the claim: retry the whole transaction

-- A procedure keeps the mode in which it was created. This mode refuses values that don't fit,
-- instead of truncating or rounding them.
set @fence_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

create database if not exists fence character set utf8mb4;

-- The fences. A row's token never falls. The collations compare bytes, trailing spaces included.
create table if not exists fence.resources (
    resource varchar(512) character set utf8mb4 collate utf8mb4_nopad_bin not null primary key,
    token bigint not null,
    holder varchar(128) character set ascii collate ascii_nopad_bin not null,
    -- The last transaction that claimed the resource; for a claim in autocommit, a random name.
    claimed_by varchar(80) character set ascii collate ascii_nopad_bin not null,
    constraint fence_resource_has_1_to_512_bytes check (octet_length(resource) between 1 and 512),
    constraint fence_token_in_range check (token between 1 and 999999999999999),
    constraint fence_holder_is_visible_ascii check (holder not regexp '[^!-~]')
) engine = InnoDB;

-- Names the session's current transaction; null in autocommit. The name is the connection's id and
-- the session's random name, with the number of statements that may have ended one of its
-- transactions. The session can set its random name; the id keeps it from taking another's.
--
-- With autocommit = 0 no statement begins a transaction. Then every statement counts that commits
-- implicitly, and SET, which may have been `set autocommit`.
--
-- FLUSH STATUS resets the counters, and their values repeat. So one counter is this procedure's
-- own: GET DIAGNOSTICS, executed once for each name of the session. If there are fewer than that,
-- the counters were reset, and the session gets another name. No user variable is assigned by SET,
-- because that would count.
create or replace procedure fence.transaction(
    out name varchar(80) character set ascii collate ascii_nopad_bin
)
reads sql data sql security definer
begin
    declare ended, named bigint;
    if not @@autocommit then
        select
            sum(if(variable_name = 'COM_GET_DIAGNOSTICS', 0, variable_value)),
            sum(if(variable_name = 'COM_GET_DIAGNOSTICS', variable_value, 0))
        into ended, named
        from information_schema.session_status
        where variable_name regexp concat(
            '^COM_(ADMIN_COMMANDS|ALTER_.*|ANALYZE|ASSIGN_TO_KEYCACHE|BACKUP|BEGIN|CHANGE_MASTER',
            '|CHECK|COMMIT|CREATE_(?!TEMPORARY).*|DROP_(?!TEMPORARY).*|FLUSH|GET_DIAGNOSTICS|GRANT.*',
            '|(UN)?INSTALL_PLUGIN|(UN)?LOCK_TABLES|OPTIMIZE|PRELOAD_KEYS|RENAME_.*|REPAIR|RESET',
            '|REVOKE.*|ROLLBACK|SET_OPTION|START_.*|STOP_.*|TRUNCATE|XA_.*)$');
    elseif @@in_transaction then
        -- A comparison of bytes is faster: the server compares the names of all its counters.
        select
            sum(if(variable_name = 'COM_GET_DIAGNOSTICS', 0, variable_value)),
            sum(if(variable_name = 'COM_GET_DIAGNOSTICS', variable_value, 0))
        into ended, named
        from information_schema.session_status
        where binary variable_name in (
            'COM_BEGIN', 'COM_COMMIT', 'COM_ROLLBACK', 'COM_XA_START', 'COM_GET_DIAGNOSTICS');
    end if;
    if ended is not null and (@fence_session is null or not named >= @fence_named) then
        get diagnostics @fence_named = number;
        select uuid(), named + 1 into @fence_session, @fence_named;
    end if;
    set name = concat(
        connection_id(), ' ', @fence_session, ' ', ended, if(@@autocommit, '', ' implicit'));
end;

-- Claims a resource: advances its fence inside the caller's transaction and holds it until the
-- transaction ends, or signals a refusal. The token is a text, so that no fraction is rounded away.
create or replace procedure fence.claim(
    in claimed varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_token varchar(64) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_holder varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare offered, seen_token, unchanged bigint;
    declare seen_holder varchar(128) character set ascii collate ascii_nopad_bin;
    declare this_transaction, seen_by, claimer varchar(80)
        character set ascii collate ascii_nopad_bin;
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
    set offered = offered_token;
    call fence.transaction(this_transaction);
    set claimer = coalesce(this_transaction, concat(uuid(), ''));

    -- 2. Insert the first fence, or lock the row. A locking read of a row that doesn't exist would
    -- lock the gap instead, and two first claims would deadlock. In autocommit the lock ends with
    -- this statement, so it applies the rule, too. MariaDB assigns from left to right: the token
    -- comes last, because the other two depend on its old value.
    insert into fence.resources
    values (claimed, offered, offered_holder, claimer)
    on duplicate key update
        claimed_by = if(
            this_transaction is null
                and (offered > token or offered = token and offered_holder = holder),
            claimer, claimed_by),
        holder = if(this_transaction is null and offered > token, offered_holder, holder),
        token = if(this_transaction is null, greatest(offered, token), token);
    select token, holder, claimed_by into seen_token, seen_holder, seen_by
    from fence.resources where resource = claimed for update;

    -- 3. A plain read shows the row as all plain reads of this transaction show the data. If it has
    -- changed since, the data may have, too. This read comes after the lock, because the first
    -- plain read of a transaction determines what all later ones see. It is a statement of its own:
    -- a subquery in an expression would lock the row, and read its latest version.
    if this_transaction is not null then
        select count(*) into unchanged
        from fence.resources
        where resource = claimed and token = seen_token and holder = seen_holder
            and claimed_by = seen_by;
        if not unchanged then
            signal sqlstate '40001' set mysql_errno = 1020, message_text =
            'the resource was claimed after this transaction began to read: retry the transaction';
        end if;
    end if;

    -- 4. Apply the rule.
    if seen_token > offered then
        set refusal = concat(
            'the token is stale {"token":', offered, ',"highest_token":', seen_token, '}');
        signal sqlstate 'ZF001' set message_text = refusal;
    elseif seen_token = offered and seen_holder <> offered_holder then
        set refusal = concat(
            'the token belongs to another holder',
            if(offered_holder = '' or seen_holder = '', '; was the holder left out?', ''),
            ' {"token":', offered, ',"highest_token":', seen_token, '}');
        signal sqlstate 'ZF002' set message_text = refusal;
    end if;
    if this_transaction is not null and (seen_token < offered or seen_by <> this_transaction) then
        update fence.resources
        set token = offered, holder = offered_holder, claimed_by = this_transaction
        where resource = claimed;
    end if;
end;

-- Presents a token and holder for this transaction's blind writes to protected tables. A written
-- row claims its resource with them, unless the transaction has already claimed the resource.
create or replace procedure fence.present(
    in offered_token varchar(64) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_holder varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
reads sql data sql security definer
begin
    declare this_transaction varchar(80) character set ascii collate ascii_nopad_bin;
    call fence.transaction(this_transaction);
    select this_transaction, offered_token, offered_holder
    into @fence_presented_in, @fence_token, @fence_holder;
end;

-- The fences. Knowing a holder proves ownership, so the view shows only the beginning of it, and
-- nothing of a short one.
create or replace sql security definer view fence.fences as
select resource, token,
    case
        when holder = '' then ''
        when char_length(holder) < 16 then '...'
        else concat(left(holder, 8), '...')
    end as holder
from fence.resources;

-- Deletes the fences of all resources whose names begin with a prefix. Tokens of any height are
-- accepted for them again: call it only when no lock on these names will ever be granted again.
create or replace procedure fence.forget(
    in prefix varchar(512) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    if coalesce(prefix, '') = '' then
        signal sqlstate 'ZF003' set message_text = 'the prefix is empty';
    end if;
    delete from fence.resources where left(resource, char_length(prefix)) = prefix;
end;

set session sql_mode = @fence_sql_mode;
