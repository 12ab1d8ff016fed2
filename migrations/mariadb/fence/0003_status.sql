-- The fence inside MariaDB: which tables should be protected, which are, and the triggers to create. Apply
-- 0002_protect.sql first, in the same way.
--
--     call fence.protect_sql('mydatabase.accounts', 'account_id');   prints what protects a table
--     call fence.report('mydatabase.accounts');                      records, and rejects nothing
--     call fence.enforce('mydatabase.accounts');                     rejects
--     call fence.unprotect('mydatabase.accounts');                   expects no triggers any more
--     select * from fence.status where problem is not null;

set @fence_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION';

-- The resource of the row `new` or `old`, as SQL. A column of bytes becomes hexadecimal: as text,
-- bytes that are no characters would all be `?`, and rows would collide. A timestamp becomes a
-- number, which doesn't depend on the session's time_zone.
create or replace function fence.resource_of(
    protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    expression varchar(2048) character set utf8mb4 collate utf8mb4_nopad_bin,
    of_row char(3)
)
returns text character set utf8mb4 collate utf8mb4_nopad_bin
not deterministic reads sql data sql security definer
begin
    declare in_database varchar(64) character set utf8mb4 default
        substring_index(protected_table, '.', 1);
    declare in_table varchar(64) character set utf8mb4 default
        substr(protected_table, char_length(in_database) + 2);
    declare of_type varchar(64) character set utf8mb4;
    declare quoted varchar(80) character set utf8mb4;
    declare mentioned text character set utf8mb4;
    -- 1. A column.
    select data_type, concat(of_row, '.`', replace(column_name, '`', '``'), '`')
    into of_type, quoted
    from information_schema.columns
    where table_schema = in_database and table_name = in_table
        and column_name = trim(both '`' from trim(expression));
    if of_type in ('binary', 'varbinary', 'tinyblob', 'blob', 'mediumblob', 'longblob', 'bit') then
        return concat('left(hex(', quoted, '), 1024)');
    elseif of_type = 'timestamp' then
        return concat('unix_timestamp(', quoted, ')');
    elseif of_type in ('char', 'varchar', 'tinytext', 'text', 'mediumtext', 'longtext') then
        return concat('left(', quoted, ', 1024)'); -- What is longer would be no parameter, nor a resource.
    elseif of_type is not null then
        return quoted;
    end if;
    -- 2. An expression. It is evaluated over a row of the columns that it may mention.
    select group_concat(
        of_row, '.`', replace(column_name, '`', '``'), '` as `', replace(column_name, '`', '``'), '`'
        order by ordinal_position separator ', ')
    into mentioned
    from information_schema.columns
    where table_schema = in_database and table_name = in_table
        and locate(lower(column_name), lower(expression)) > 0;
    return concat(
        '(select ', expression, ' from (select ', coalesce(mentioned, '1'), ') as `',
        replace(in_table, '`', '``'), '`)');
end;

-- A literal for sessions without NO_BACKSLASH_ESCAPES, all in one line.
create or replace function fence.quoted(
    value varchar(2048) character set utf8mb4 collate utf8mb4_nopad_bin
)
returns text character set utf8mb4 collate utf8mb4_nopad_bin
deterministic no sql sql security definer
return concat('''', replace(replace(value, '\\', '\\\\'), '''', ''''''), '''');

-- The body of a trigger.
create or replace function fence.body_of(
    protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    expression varchar(2048) character set utf8mb4 collate utf8mb4_nopad_bin,
    event varchar(6)
)
returns text character set utf8mb4 collate utf8mb4_nopad_bin
not deterministic reads sql data sql security definer
begin
    declare protects varchar(300) character set utf8mb4 default fence.quoted(protected_table);
    declare resource_before, resource_after text character set utf8mb4;
    set resource_before = fence.resource_of(protected_table, expression, 'old');
    set resource_after = fence.resource_of(protected_table, expression, 'new');
    return concat(
        'call fence.check_both(', protects, ', ',
        if(event = 'insert', resource_after, resource_before), ', ',
        if(event = 'delete', resource_before, resource_after), ')');
end;

-- Whether a table has the trigger that it should have, from a strict mode: null, or what is wrong. Quotes and
-- backslashes are left out, which MariaDB may show otherwise than they were written.
create or replace function fence.trigger_problem(
    protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    expression varchar(2048) character set utf8mb4 collate utf8mb4_nopad_bin,
    event varchar(6)
)
returns varchar(20) character set utf8mb4
not deterministic reads sql data sql security definer
begin
    declare in_database varchar(64) character set utf8mb4 default
        substring_index(protected_table, '.', 1);
    declare in_table varchar(64) character set utf8mb4 default
        substr(protected_table, char_length(in_database) + 2);
    declare body text character set utf8mb4 collate utf8mb4_nopad_bin default
        regexp_replace(fence.body_of(protected_table, expression, event), '[\'"\\\\]', '');
    declare checks, is_right boolean;
    select max(true), max(
        regexp_replace(action_statement, '[\'"\\\\]', '') = body and sql_mode like '%STRICT_ALL_TABLES%')
    into checks, is_right
    from information_schema.triggers
    where event_object_schema = in_database and event_object_table = in_table
        and event_manipulation = event and action_timing = 'AFTER'
        and action_statement regexp '\\bfence`?[.]`?check';
    return case when is_right then null when checks then concat(event, ' different') else concat(event, ' missing') end;
end;

-- What keeps a table from being protected; null if nothing does. Only InnoDB can undo a rejected statement.
create or replace function fence.problem_of(
    protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    expression varchar(2048) character set utf8mb4 collate utf8mb4_nopad_bin
)
returns varchar(200) character set utf8mb4
not deterministic reads sql data sql security definer
begin
    declare in_database varchar(64) character set utf8mb4 default
        substring_index(protected_table, '.', 1);
    declare in_table varchar(64) character set utf8mb4 default
        substr(protected_table, char_length(in_database) + 2);
    -- InnoDB's own name of the table, in which a character may be `@0060`. Those of partitions begin with it and `#P#`.
    declare file varchar(700) character set utf8mb4 default
        concat(convert(in_database using filename), '/', convert(in_table using filename));
    declare its_engine varchar(64) character set utf8mb4;
    declare discarded boolean default false;
    -- Only an installer with the right PROCESS can see that.
    declare continue handler for 1227 begin end;
    select coalesce(engine, 'none') into its_engine
    from information_schema.tables where table_schema = in_database and table_name = in_table;
    if its_engine is null then
        return 'no table';
    elseif its_engine <> 'InnoDB' then
        return concat('engine ', its_engine);
    end if;
    select count(*) > 0 into discarded
    from information_schema.innodb_sys_tables
    where (name = file or left(name, char_length(file) + 3) = concat(file, '#P#'))
        and space not in (select space from information_schema.innodb_sys_tablespaces);
    if discarded then
        return 'tablespace discarded';
    end if;
    return nullif(concat_ws(
        ', ', fence.trigger_problem(protected_table, expression, 'insert'),
        fence.trigger_problem(protected_table, expression, 'update'),
        fence.trigger_problem(protected_table, expression, 'delete')), '');
end;

-- The tables that should be protected, and what is wrong with them; null if nothing is. Then the tables that have such
-- triggers and are not noted here: after a restore of a part, for example, their fences are missing, too.
create or replace sql security definer view fence.status as
select protected, resource, mode, fence.problem_of(protected, resource) as problem
from fence.protected
union all
select distinct concat(event_object_schema, '.', event_object_table), null, null, 'unregistered'
from information_schema.triggers
where action_statement regexp '\\bfence`?[.]`?check'
    and convert(concat(event_object_schema, '.', event_object_table) using utf8mb4)
        collate utf8mb4_nopad_bin not in (select protected from fence.protected);

-- Prints the statements that protect a table, each in one line, without a delimiter. The resource is a column, or an
-- expression over the row. They may be executed again, also with another expression.
create or replace procedure fence.protect_sql(
    in protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    in expression varchar(2048) character set utf8mb4 collate utf8mb4_nopad_bin
)
reads sql data sql security invoker
begin
    declare in_database varchar(80) character set utf8mb4 default
        replace(substring_index(protected_table, '.', 1), '`', '``');
    declare in_table varchar(80) character set utf8mb4 default replace(
        substr(protected_table, char_length(substring_index(protected_table, '.', 1)) + 2),
        '`', '``');
    declare problem varchar(400) character set utf8mb4 default fence.problem_of(protected_table, expression);
    if problem = 'no table' then
        signal sqlstate '42S02' set message_text = 'there is no such table: name it as mydatabase.accounts';
    elseif problem = 'tablespace discarded' then
        set problem = concat(protected_table, ' can''t be protected before its tablespace is imported');
        signal sqlstate '0A000' set message_text = problem;
    elseif problem like 'engine %' then
        set problem = concat(
            protected_table, ' can''t be protected: it has ', problem, '. Only InnoDB can undo a rejected statement');
        signal sqlstate '0A000' set message_text = problem;
    end if;
    -- A mistake in the expression must fail here, not in a later write.
    execute immediate concat(
        'select (', expression, ') into @fence_tried from (select * from `', in_database, '`.`',
        in_table, '` limit 0) as `', in_table, '` limit 0');

    select 'set @fence_sql_mode = @@session.sql_mode' as `sql`
    union all
    select concat(
        'set session sql_mode = ''STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,',
        'NO_ENGINE_SUBSTITUTION''')
    union all
    select concat(
        'create or replace trigger `', in_database, '`.`', left(in_table, 50), '_fence_', event,
        '` after ', event, ' on `', in_database, '`.`', in_table, '` for each row ',
        fence.body_of(protected_table, expression, event))
    from (select 'insert' as event union all select 'update' union all select 'delete') as events
    union all
    select concat(
        'call fence.expect(', fence.quoted(protected_table), ', ', fence.quoted(expression), ')')
    union all
    select 'set session sql_mode = @fence_sql_mode';
end;

-- Records that a table should be protected. `protect_sql` prints its call.
create or replace procedure fence.expect(
    in protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin,
    in expression varchar(2048) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    insert into fence.protected values (protected_table, expression, 'enforce')
    on duplicate key update resource = expression;
end;

-- Lets writes to a table pass that would be rejected, and records them in fence.reports. Call it
-- before the triggers are created on a live system. A claim that is rejected still fails.
create or replace procedure fence.report(
    in protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    if not exists (
        select 1 from information_schema.tables
        where table_schema = substring_index(protected_table, '.', 1)
            and table_name = substr(protected_table, char_length(table_schema) + 2)
    ) then
        signal sqlstate '42S02' set message_text = 'there is no such table: name it as mydatabase.accounts';
    end if;
    insert into fence.protected values (protected_table, null, 'report')
    on duplicate key update mode = 'report';
end;

-- Rejects writes to a table without a valid token.
create or replace procedure fence.enforce(
    in protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    if not exists (select 1 from fence.protected where protected = protected_table) then
        signal sqlstate '42S02' set message_text = 'this table is not protected: name it as mydatabase.accounts';
    end if;
    update fence.protected set mode = 'enforce' where protected = protected_table;
end;

-- Records that a table should not be protected any more. Drop its triggers first.
create or replace procedure fence.unprotect(
    in protected_table varchar(129) character set utf8mb4 collate utf8mb4_nopad_bin
)
modifies sql data sql security definer
begin
    if not exists (select 1 from fence.protected where protected = protected_table) then
        signal sqlstate '42S02' set message_text = 'this table is not protected: name it as mydatabase.accounts';
    end if;
    delete from fence.protected where protected = protected_table;
end;

set session sql_mode = @fence_sql_mode;
