-- The fence inside MariaDB, 10.5 or newer, in a database of its own: `fence`. All applications of a server share it.
-- Apply all files of this folder, in the order of their names. They may be applied again, also while clients write:
--
--     mariadb --execute 'create database if not exists fence'
--     mariadb --delimiter=// fence < 0001_fence.sql
--
-- Without the delimiter, the client would split the procedures at their semicolons. A transaction claims its
-- resources, then reads, then writes. It claims each resource with the token of the lock that guards it:
--
--     begin;
--     call fence.claim('alice', 34, 'me');
--     select balance from accounts where account_id = 'alice';
--     update accounts set balance = 70 where account_id = 'alice';
--     commit;
--
-- A rejection is an error with a SQLSTATE of its own. Its message ends with a JSON object. Roll back after it: the
-- statement has changed nothing, but the transaction still holds the fence.
--
--     ZF001  stale            {"token", "highest_token"}
--     ZF002  holder conflict  {"token", "highest_token"}
--     ZF003  malformed; or MariaDB's own 22001, for a value that is too long for a parameter
--     ZF004  token required
--     ZF006  a needed setting is missing: a write to a protected table with binlog_format=STATEMENT or
--            foreign_key_checks=0
--     40001  the transaction reads older state than the claim: retry the whole transaction
--
-- migrations/README.md says what is guaranteed, and what is not.

-- Rejects the fence of another build, before anything is changed.
begin not atomic
    declare place varchar(64);
    declare problem varchar(512);
    set @fence_version = 7;
    select routine_schema into place
    from information_schema.routines where routine_name = 'fence_claim' order by 1 limit 1;
    if exists (
        select 1 from information_schema.routines where routine_schema = 'fence' and routine_name = 'version'
    ) then
        execute immediate 'select fence.version() into @fence_version';
    elseif exists (
        select 1 from information_schema.tables where table_schema = 'fence' and table_name = 'resources'
    ) and not exists (
        -- A dump without routines was restored.
        select 1 from information_schema.columns
        where table_schema = 'fence' and table_name = 'resources' and column_name = 'claimed_on'
    ) then
        set @fence_version = 0;
    end if;
    if place is not null then
        set problem = concat('the database `', place, '` has the fence of an earlier build, with `fence_claim`');
    elseif @fence_version <> 7 then
        set problem = concat(
            'the database `fence` is of another build: its version is ', @fence_version, ' instead of 7');
    end if;
    if problem is not null then
        set problem = concat(problem, '. Nothing was changed. To carry its fences over: stop all clients, rename its ',
            'table of fences into another database, drop the rest, apply the files, insert resource, token and holder ',
            'of each fence into fence.resources, and protect the tables again (migrations/README.md, MariaDB)');
        signal sqlstate '45000' set message_text = problem;
    end if;
end;

-- A procedure keeps the mode in which it was created. This mode rejects values that don't fit, instead of truncating
-- or rounding them.
set @fence_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

create database if not exists fence character set utf8mb4;

create or replace function fence.version() returns int
deterministic no sql sql security definer
return 7;

-- The fences. A row's token never falls. The collations compare bytes, trailing spaces included.
create table if not exists fence.resources (
    resource varchar(512) character set utf8mb4 collate utf8mb4_nopad_bin not null primary key,
    token bigint not null,
    holder varchar(128) character set ascii collate ascii_nopad_bin not null,
    -- The last claim: the number of its transaction, and its server and connection. In autocommit, a random number
    -- and 0. Every claim changes them.
    claimed_by bigint unsigned not null default 0,
    claimed_on bigint unsigned not null default 0,
    key claims (resource, claimed_by, claimed_on),
    constraint fence_resource_has_1_to_512_bytes check (octet_length(resource) between 1 and 512),
    constraint fence_token_in_range check (token between 1 and 999999999999999),
    constraint fence_holder_is_visible_ascii check (holder not regexp '[^!-~]')
) engine = InnoDB;

-- InnoDB numbers its transactions, and never gives a number twice. SQL sees the number in one place only: in the
-- column `row start` of a table with this versioning. Of these three tables, only the first rows of `proofs` are ever
-- committed. So mysql.transaction_registry, where MariaDB keeps the commits of such tables, doesn't grow.
create table if not exists fence.numbers (
    id bigint unsigned not null primary key,
    number bigint unsigned generated always as row start,
    until bigint unsigned generated always as row end,
    period for system_time (number, until)
) engine = InnoDB with system versioning;

-- A transaction has no lasting number before its first change. This table is there to be changed.
create table if not exists fence.anchors (id bigint unsigned not null primary key) engine = InnoDB;

-- Proves that the present transaction has claimed a resource. InnoDB itself writes the number of the transaction into
-- a new row, and then compares the row with the foreign key. A row that matches no claim fails with 1452. A row that
-- matches fails too, with 1062, because the next index has its slot already. So each insert fails, InnoDB takes the row
-- back at once, and the error is the answer. A savepoint would do the same, but in a trigger it would keep what the
-- rejected statement has written.
--
-- An upsert locks the row of the slot until its transaction ends. So a connection has a slot by its id, and shares it
-- only with those whose ids differ by a multiple of 16384.
create table if not exists fence.proofs (
    resource varchar(512) character set utf8mb4 collate utf8mb4_nopad_bin,
    claimed_on bigint unsigned,
    slot smallint unsigned,
    number bigint unsigned generated always as row start,
    until bigint unsigned generated always as row end,
    period for system_time (number, until),
    -- The order matters. InnoDB checks the foreign key at the first index.
    unique key claims (resource, number, claimed_on),
    unique key slots (slot),
    constraint fence_claims foreign key (resource, number, claimed_on)
        references fence.resources (resource, claimed_by, claimed_on)
) engine = InnoDB with system versioning;

begin not atomic
    if (select count(*) from fence.proofs) < 16384 then
        set statement max_recursive_iterations = 16384 for
        insert ignore into fence.proofs (slot)
        with recursive slots (slot) as (select 0 union all select slot + 1 from slots where slot < 16383)
        select slot from slots;
    end if;
end;

-- Returns the number of the present transaction; null in autocommit.
create or replace procedure fence.transaction(out number bigint unsigned)
modifies sql data sql security definer
begin
    declare row_id bigint unsigned default uuid_short();
    if not @@autocommit or @@in_transaction then
        -- Without the checks, a first insert locks the whole table.
        set statement unique_checks = 1 for insert into fence.anchors values (row_id);
        delete from fence.anchors where id = row_id;
        savepoint fence_transaction;
        set statement unique_checks = 1 for insert into fence.numbers (id) values (row_id);
        -- A read that locks needs no snapshot: the first snapshot of a transaction must be newer than its claim.
        select numbers.number into number from fence.numbers where id = row_id for update;
        rollback to savepoint fence_transaction;
        release savepoint fence_transaction;
    end if;
    set @fence_transaction = number;
    -- Never executed. MariaDB rejects this procedure in triggers and functions because it contains COMMIT. That is
    -- wanted: there, its savepoint would keep what a rejected statement wrote.
    if false then
        commit;
    end if;
end;

-- The server and connection. A standby that is promoted numbers its transactions anew, and has another server_id.
create or replace function fence.session() returns bigint unsigned
not deterministic no sql sql security definer
return @@server_id * 4294967296 + connection_id();

-- Claims a resource: advances its fence inside the caller's transaction and holds it until the transaction ends, or
-- signals a rejection. The token is a text, so that no fraction is rounded away.
create or replace procedure fence.claim(
    in claimed varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_token varchar(64) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_holder varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare this_transaction bigint unsigned;
    call fence.transaction(this_transaction);
    call fence.claim_in(this_transaction, claimed, offered_token, offered_holder);
end;

-- Signals an error if this transaction reads older state than the last claim of a resource, whose row it has locked. A
-- plain read shows the row as all plain reads of this transaction show the data. If it has changed since, the data may
-- have, too. This read comes after the lock, because the first plain read of a transaction determines what all later
-- ones see. It comes before this transaction changes the row, because its own changes are always seen. It is a
-- statement of its own: a subquery in an expression would lock the row, and read its latest version.
create or replace procedure fence.check_snapshot(
    in claimed varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in seen_by bigint unsigned, in seen_on bigint unsigned
)
reads sql data sql security definer
begin
    declare unchanged bigint;
    select count(*) into unchanged
    from fence.resources where resource = claimed and claimed_by = seen_by and claimed_on = seen_on;
    if not unchanged then
        signal sqlstate '40001' set mysql_errno = 1020, message_text =
        'the resource was claimed after this transaction began to read: retry the transaction';
    end if;
end;

-- Claims a resource in the transaction of this number; in autocommit, if it is null.
create or replace procedure fence.claim_in(
    in this_transaction bigint unsigned,
    in claimed varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_token varchar(64) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_holder varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare offered, seen_token bigint;
    declare seen_holder varchar(128) character set ascii collate ascii_nopad_bin;
    declare seen_by, seen_on bigint unsigned;
    declare this_session bigint unsigned default if(this_transaction is null, 0, fence.session());
    declare claimer bigint unsigned default coalesce(this_transaction, uuid_short());
    declare rejection varchar(128);
    -- 1. Check the arguments.
    if not coalesce(octet_length(claimed) between 1 and 512, false) then
        signal sqlstate 'ZF003' set message_text = 'the resource is malformed';
    end if;
    -- The second pattern rejects a newline at the end, which `$` ignores.
    if not coalesce(offered_token regexp '^[1-9][0-9]{0,14}$' and offered_token not regexp '[^0-9]', false) then
        signal sqlstate 'ZF003' set message_text = 'the token is malformed';
    end if;
    if not coalesce(octet_length(offered_holder) <= 128 and offered_holder not regexp '[^!-~]', false) then
        signal sqlstate 'ZF003' set message_text = 'the holder is malformed';
    end if;
    set offered = offered_token;

    -- 2. Insert the first fence, or lock the row. A locking read of a row that doesn't exist would lock the gap
    -- instead, and two first claims would deadlock. In autocommit the lock ends with this statement, so it applies the
    -- rule, too. MariaDB assigns from left to right: the token comes last, because the others depend on its old value.
    -- The foreign key is not checked here: the proofs that are stored name no claims, and the check would make all
    -- proofs wait.
    set statement foreign_key_checks = 0, unique_checks = 1 for
    insert into fence.resources
    values (claimed, offered, offered_holder, claimer, this_session)
    on duplicate key update
        claimed_by = if(
            this_transaction is null
                and (offered > token or offered = token and offered_holder = holder),
            claimer, claimed_by),
        holder = if(this_transaction is null and offered > token, offered_holder, holder),
        token = if(this_transaction is null, greatest(offered, token), token);
    select token, holder, claimed_by, claimed_on into seen_token, seen_holder, seen_by, seen_on
    from fence.resources where resource = claimed for update;

    -- 3. Look at the snapshot.
    if this_transaction is not null then
        call fence.check_snapshot(claimed, seen_by, seen_on);
    end if;

    -- 4. Apply the rule.
    if seen_token > offered then
        set rejection = concat(
            'the token is stale {"token":', offered, ',"highest_token":', seen_token, '}');
        signal sqlstate 'ZF001' set message_text = rejection;
    elseif seen_token = offered and seen_holder <> offered_holder then
        set rejection = concat(
            'the token belongs to another holder',
            if(offered_holder = '' or seen_holder = '', '; was the holder left out?', ''),
            ' {"token":', offered, ',"highest_token":', seen_token, '}');
        signal sqlstate 'ZF002' set message_text = rejection;
    end if;
    if this_transaction is not null
        and (seen_token < offered or seen_by <> claimer or seen_on <> this_session)
    then
        set statement foreign_key_checks = 0 for
        update fence.resources
        set token = offered, holder = offered_holder, claimed_by = claimer, claimed_on = this_session
        where resource = claimed;
    end if;
    if this_transaction is not null then
        set @fence_claimed = claimed;
    end if;
end;

-- Presents a token and holder for this transaction's blind writes to protected tables. A written row claims its
-- resource with them, unless the transaction has already claimed the resource.
create or replace procedure fence.present(
    in offered_token varchar(64) character set utf8mb4 collate utf8mb4_nopad_bin,
    in offered_holder varchar(1024) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    declare this_transaction bigint unsigned;
    call fence.transaction(this_transaction);
    set @fence_presented_in = this_transaction, @fence_token = offered_token, @fence_holder = offered_holder,
        @fence_claimed = null;
end;

-- The fences. Knowing a holder proves ownership, so the view shows only the beginning of it, and nothing of a short
-- one.
create or replace sql security definer view fence.fences as
select resource, token,
    case
        when holder = '' then ''
        when char_length(holder) < 16 then '...'
        else concat(left(holder, 8), '...')
    end as holder
from fence.resources;

-- Deletes the fences of all resources whose names begin with a prefix. Tokens of any height are accepted for them
-- again: call it only when no lock on these names will ever be granted again.
create or replace procedure fence.forget(in prefix varchar(512) character set utf8mb4 collate utf8mb4_nopad_bin)
modifies sql data sql security definer
begin
    if coalesce(prefix, '') = '' then
        signal sqlstate 'ZF003' set message_text = 'the prefix is empty';
    end if;
    set statement foreign_key_checks = 0 for
    delete from fence.resources where left(resource, char_length(prefix)) = prefix;
end;

set session sql_mode = @fence_sql_mode;
