-- The fence inside SQLite: the tables that it protects. Apply 0001_fence.sql first. May be applied again.
--
--     insert into fence_protect values ('accounts', 'account_id');
--     select sql from fence_protect_sql;  -- fetch all, then execute them in one transaction
--     select * from fence_status where problem is not null;  -- after each migration: are the triggers still there?

savepoint fence_0002;

-- The tables that ought to be protected. The resource is a column, or an expression over the row
-- and nothing else, for instance 'order/' || id. Tools that rebuild a table lose its triggers, but
-- not its row here.
create table if not exists fence_protected (
    protected text not null collate nocase primary key,
    resource text not null,
    mode text not null check (mode in ('enforce', 'report'))
) strict, without rowid;

drop trigger if exists fence_protected_is_checked;
create trigger fence_protected_is_checked before insert on fence_protected begin
    select raise(abort, 'ZF003 there is no such table, or it can have no triggers')
    where not exists (
        select 1 from sqlite_schema
        where type = 'table' and name = new.protected collate nocase
            and name not glob 'sqlite_*' and sql not glob 'CREATE VIRTUAL*'
            and name not in (
                'fence', 'fence_presented', 'fence_no_rows', 'fence_protected', 'fence_reports')
    );
    select raise(abort, 'ZF003 the resource is missing')
    where coalesce(trim(new.resource), '') = '';
end;

-- `fence_unprotect` empties the resource before it deletes the row. No other statement does.
drop trigger if exists fence_protected_is_not_deleted;
create trigger fence_protected_is_not_deleted before delete on fence_protected
when old.resource <> '' begin
    select raise(abort, 'ZF005 to remove a note: insert into fence_unprotect values (table)');
end;

-- An insert into one of these two views notes a table, or changes its note. `fence_report` lets the
-- table's triggers pass all writes, and record in `fence_reports` what they would reject.
drop view if exists fence_protect;
create view fence_protect (protected, resource) as
select protected, resource from fence_protected where mode = 'enforce';

create trigger fence_protect_notes instead of insert on fence_protect begin
    insert into fence_protected values (
        (select name from sqlite_schema
         where type = 'table' and name = new.protected collate nocase),
        new.resource, 'enforce')
    on conflict do update set resource = excluded.resource, mode = excluded.mode;
end;

drop view if exists fence_report;
create view fence_report (protected, resource) as
select protected, resource from fence_protected where mode = 'report';

create trigger fence_report_notes instead of insert on fence_report begin
    insert into fence_protected values (
        (select name from sqlite_schema
         where type = 'table' and name = new.protected collate nocase),
        new.resource, 'report')
    on conflict do update set resource = excluded.resource, mode = excluded.mode;
end;

-- An insert into this view ends the report of a table: from then on its triggers reject.
drop view if exists fence_enforce;
create view fence_enforce (protected) as
select protected from fence_protected where mode = 'enforce';

create trigger fence_enforce_noted instead of insert on fence_enforce begin
    select raise(abort, 'ZF003 the table is not noted')
    where not exists (select 1 from fence_protected where protected = new.protected);
    update fence_protected set mode = 'enforce' where protected = new.protected;
end;

-- An insert into this view removes the note of a table. Drop the table's triggers yourself.
drop view if exists fence_unprotect;
create view fence_unprotect (protected) as
select protected from fence_protected;

create trigger fence_unprotect_noted instead of insert on fence_unprotect begin
    select raise(abort, 'ZF003 the table is not noted')
    where not exists (select 1 from fence_protected where protected = new.protected);
    update fence_protected set resource = '' where protected = new.protected;
    delete from fence_protected where protected = new.protected;
end;

-- What tables in report mode would have rejected: each resource once per table and code, at most
-- 1000 for a table. `last_at` is set at most once a minute. Anyone may delete the rows.
create table if not exists fence_reports (
    protected text not null collate nocase,
    resource text not null,
    code text not null,
    first_at text not null default current_timestamp,
    last_at text not null default current_timestamp,
    primary key (protected, resource, code)
) strict, without rowid;

-- A protected table's triggers insert each row's table and resource into this view. It rejects the row unless this
-- transaction presents a token for the resource. In report mode, it records the rejection instead.
drop view if exists fence_require;
create view fence_require (protected, resource) as
select protected, resource from fence_protected;

create trigger fence_require_a_token instead of insert on fence_require
when not exists (
    select 1 from fence_protected where protected = new.protected and mode = 'report'
) begin
    -- Without this setting, INSERT OR REPLACE fires no delete triggers.
    select raise(abort, 'ZF006 needed on this connection: pragma recursive_triggers = on')
    where not (select recursive_triggers from pragma_recursive_triggers);
    select raise(abort, 'ZF003 the row has no resource') where new.resource is null;
    select raise(abort, 'ZF004 a token is required, as the table is protected')
    where not exists (
        select 1 from fence_presented join fence using (resource, token, holder)
        where fence_presented.resource = cast(new.resource as text)
    );
end;

-- The codes are those of `fence_require_a_token`. Nothing here raises an error: the upsert is not
-- subject to the conflict clause of the statement that fired the triggers.
create trigger fence_require_reported instead of insert on fence_require
when exists (
    select 1 from fence_protected where protected = new.protected and mode = 'report'
) begin
    insert into fence_reports (protected, resource, code)
    select new.protected, rejected.resource, code
    from (
        select
            coalesce(substr(cast(new.resource as text), 1, 512), '') as resource,
            case
                when not (select recursive_triggers from pragma_recursive_triggers) then 'ZF006'
                when new.resource is null then 'ZF003'
                when not exists (
                    select 1 from fence_presented join fence using (resource, token, holder)
                    where fence_presented.resource = cast(new.resource as text)
                ) then 'ZF004'
            end as code
    ) as rejected
    where code is not null
        and (
            exists (
                select 1 from fence_reports r
                where r.protected = new.protected and r.resource = rejected.resource
                    and r.code = rejected.code
            )
            or 1000 > (
                select count(*)
                from (select 1 from fence_reports where protected = new.protected limit 1000)
            )
        )
    on conflict do update set last_at = excluded.last_at
    where last_at < datetime('now', '-1 minute');
end;

-- The triggers that protect the noted tables, and a trial of each expression. A column of the table
-- is used as it is. An expression sees those columns of the row whose names occur in it, so that
-- other columns may come and go.
drop view if exists fence_trigger;
create view fence_trigger (protected, event, name, definition) as
with noted as (
    select protected, resource, '"' || replace(protected, '"', '""') || '"' as relation
    from fence_protected
    where exists (
        select 1 from sqlite_schema where type = 'table' and name = protected collate nocase
    )
),
named as (
    select noted.protected, cid, '"' || replace(name, '"', '""') || '"' as quoted,
        lower(trim(resource)) in (lower(name), '"' || replace(lower(name), '"', '""') || '"')
            as is_resource
    from noted join pragma_table_xinfo(noted.protected, 'main')
    where instr(lower(resource), lower(name)) > 0
        or instr(lower(resource), replace(lower(name), '"', '""')) > 0
        or instr(lower(resource), replace(lower(name), '`', '``')) > 0
),
-- The resource of the row that a trigger calls old or new, and for the trial of any row.
of_row as (
    select protected, relation, side, coalesce(
        (select case side when '' then '(select ' || quoted || origin || ')' else side || quoted end
         from named where named.protected = noted.protected and is_resource),
        '(select (' || resource || char(10) || ') from (select '
            || coalesce(
                (select group_concat(side || quoted || ' as ' || quoted, ', ')
                 from (select quoted from named
                       where named.protected = noted.protected order by cid)),
                'null')
            || origin || ') as ' || relation || ')') as resource
    from (
        select *, '' as side, ' from main.' || relation as origin from noted
        union all select *, 'old.', '' from noted
        union all select *, 'new.', '' from noted
    ) as noted
)
select protected, 'trial' as event, null as name,
    'insert into fence_require select ' || quote(protected) || ', ' || resource || ' limit 0'
        as definition
from of_row where side = ''
union all
select protected, event, protected || '_fence_' || event,
    '"' || replace(protected, '"', '""') || '_fence_' || event || '" after ' || event
        || ' on ' || relation || ' begin insert into fence_require values ' || case event
            when 'insert' then new_row
            when 'delete' then old_row
            else old_row || ', ' || new_row
        end || '; end'
from (
    select protected, relation,
        max('(' || quote(protected) || ', ' || resource || ')') filter (where side = 'old.')
            as old_row,
        max('(' || quote(protected) || ', ' || resource || ')') filter (where side = 'new.')
            as new_row
    from of_row group by protected
)
join (select 'insert' as event union all select 'update' union all select 'delete');

-- The statements that protect the noted tables, in the order in which to execute them.
drop view if exists fence_protect_sql;
create view fence_protect_sql (protected, sql) as
select protected, sql
from (
    select protected, 1 as step, definition || ';' as sql from fence_trigger where event = 'trial'
    union all
    select t.protected, 2, 'drop trigger main."' || replace(s.name, '"', '""') || '";'
    from fence_trigger t
    join sqlite_schema s
        on s.type = 'trigger' and s.name = t.name collate nocase
        and s.tbl_name = t.protected collate nocase
    union all
    select protected, 3, 'create trigger main.' || definition || ';'
    from fence_trigger where event <> 'trial'
)
order by protected, step;

-- The noted tables. `problem` is null if all is well. A trigger is `missing`, or `different` from the one that
-- `fence_protect_sql` prints. Tables that have such triggers and are not noted have no mode.
drop view if exists fence_status;
create view fence_status (protected, resource, mode, problem) as
with found as (
    select t.protected, max(case
        when s.sql is null then 'missing'
        -- SQLite stores the text in this form.
        when s.sql <> 'CREATE TRIGGER ' || t.definition then 'different'
    end) as problem
    from fence_trigger t
    left join sqlite_schema s
        on s.type = 'trigger' and s.name = t.name collate nocase
        and s.tbl_name = t.protected collate nocase
    where t.event <> 'trial'
    group by t.protected
),
-- The text of each trigger after its name.
others as (
    select tbl_name, name, lower(ltrim(
        substr(sql, 15 + instr(substr(sql, 16), name) + length(name)),
        '"`]'' ' || char(9, 10, 13))) as rest
    from sqlite_schema where type = 'trigger'
)
select p.protected, p.resource, p.mode, coalesce(
    (select problem from found where found.protected = p.protected),
    (select 'table missing' where not exists (
        select 1 from sqlite_schema where type = 'table' and name = p.protected collate nocase)),
    -- It keeps later triggers from firing, and the order of triggers is undefined.
    (select 'RAISE(IGNORE) in the trigger ' || name || ' may skip the check'
     from others
     where tbl_name = p.protected collate nocase and rest glob 'after*'
        and replace(replace(replace(replace(
            rest, ' ', ''), char(9), ''), char(10), ''), char(13), '') glob '*raise(ignore*'))
from fence_protected p
union all
select t.name, null, null, 'not noted, but its trigger ' || min(s.name) || ' requires a token'
from sqlite_schema s join sqlite_schema t
    on t.type = 'table' and t.name = s.tbl_name collate nocase
where s.type = 'trigger' and instr(lower(s.sql), 'fence_require') > 0
    and not exists (select 1 from fence_protected where protected = t.name)
group by t.name;

release fence_0002;
