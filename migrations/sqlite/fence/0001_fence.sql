-- The fence inside SQLite, 3.38 or newer: claims, and fences that no mistake deletes or lowers. Apply this file
-- first, and then 0002_protect.sql. Each may be applied again: fences and protected tables stay.
--
--     (echo 'begin immediate;'; cat *.sql; echo 'commit;') | sqlite3 -bail my.db
--
-- A transaction claims its resources, then reads, then writes. It claims each resource with the token of the lock
-- that guards it. It begins as IMMEDIATE, because a transaction that begins by reading can't write any more once
-- another connection has written:
--
--     begin immediate;
--     insert into fence_claim values ('alice', 34, 'me');
--     select balance from accounts where account_id = 'alice';
--     update accounts set balance = 70 where account_id = 'alice';
--     commit;
--
-- A rejection is an error whose message begins with one of these codes. Roll back after it. The table `fence` has
-- the fence's token.
--
--     ZF001  stale
--     ZF002  holder conflict
--     ZF003  malformed
--     ZF004  token required
--     ZF005  a fence is not lowered, and is deleted only through fence_forget
--     ZF006  a setting of the connection is missing
--
-- migrations/README.md says what is guaranteed, and what is not.

-- The file is one transaction, also inside another one: no claim meets half of it.
savepoint fence_0001;

-- A fence of another build is rejected before anything is changed. Earlier ones have no column `toggle`.
create temp table fence_of_another_build (is_found);
create temp trigger fence_of_another_build_is_rejected before insert on fence_of_another_build begin
    select raise(abort, 'this database has a fence of another build, and nothing was changed (sqlite3 needs -bail).
fence_version has its number; the oldest builds have none. To carry its fences over, in one transaction:
1. create table kept as select resource, token, holder from fence
2. remove that fence, and the triggers of your tables that call it
3. apply these files
4. insert into fence (resource, token, holder) select resource, token, holder from kept
5. protect your tables again');
end;
insert into fence_of_another_build
select 1 from sqlite_schema
where name = 'fence' and instr(sql, 'toggle') = 0 or name = 'fence_version' and sql not like '% 7';
drop table fence_of_another_build;

-- Equal on all databases. It changes whenever applying the files to an installed fence is not enough.
drop view if exists fence_version;
create view fence_version (version) as select 7;

-- The fences. A row is never deleted, and its token never falls.
create table if not exists fence (
    resource text not null primary key,
    token integer not null,
    holder text not null,
    -- Changes with each claim. Otherwise the commit of an equal claim would write nothing and sync nothing, and a
    -- power failure could take back what the transaction has read.
    toggle integer not null default 0
) strict, without rowid;

-- Statements on the table `fence` itself follow the rule, too. Holders contain no spaces, so ' forgotten' can only
-- come from `fence_forget`.
drop trigger if exists fence_is_not_replaced;
create trigger fence_is_not_replaced before insert on fence
when exists (
    select 1 from fence
    where resource = new.resource
        and (token > new.token or token = new.token and holder <> new.holder)
) begin
    select raise(abort, 'ZF005 a fence is never lowered');
end;

drop trigger if exists fence_is_not_lowered;
create trigger fence_is_not_lowered before update on fence
when new.resource <> old.resource or new.token < old.token
    or new.token = old.token and new.holder not in (old.holder, ' forgotten') begin
    select raise(abort, 'ZF005 a fence is never lowered');
end;

drop trigger if exists fence_is_not_deleted;
create trigger fence_is_not_deleted before delete on fence
when old.holder <> ' forgotten' begin
    select raise(abort, 'ZF005 to delete fences: insert into fence_forget values (prefix)');
end;

-- An insert into this view claims a resource: it advances the fence inside the caller's transaction, or raises a
-- rejection.
drop view if exists fence_claim;
create view fence_claim (resource, token, holder) as
select resource, token, holder from fence;

create trigger fence_claim_by_the_rule instead of insert on fence_claim begin
    select raise(abort, 'ZF003 the resource is malformed')
    where not (
        typeof(new.resource) = 'text'
        and (
            length(cast(new.resource as blob)) between 1 and 512
            -- In UTF-16 the blob is longer. `format` pads to 513 bytes of UTF-8.
            or length(new.resource) > 0
            and instr(new.resource, char(0)) = 0
            and length(format('%513s', new.resource)) > length(new.resource)
        )
    );
    select raise(abort, 'ZF003 the token is malformed')
    where not (typeof(new.token) = 'integer' and new.token between 1 and 999999999999999);
    select raise(abort, 'ZF003 the holder is malformed')
    where not (
        typeof(new.holder) = 'text'
        and length(new.holder) <= 128
        and new.holder not glob '*[^!-~]*'
        -- The pattern and `length` end at the first null character.
        and instr(new.holder, char(0)) = 0
    );
    select raise(abort, 'ZF001 the token is stale: the fence is higher')
    from fence where resource = new.resource and token > new.token;
    select raise(abort, 'ZF002 the token belongs to another holder: one is empty, probably forgotten')
    from fence
    where resource = new.resource and token = new.token and holder <> new.holder
        and '' in (holder, new.holder);
    select raise(abort, 'ZF002 the token belongs to another holder: it was issued twice')
    from fence where resource = new.resource and token = new.token and holder <> new.holder;
    insert into fence (resource, token, holder) values (new.resource, new.token, new.holder)
    on conflict do update set token = new.token, holder = new.holder, toggle = 1 - toggle;
end;

-- An insert into this view deletes the fences of all resources that begin with the prefix; '' deletes all. From
-- then on, each old token of these resources is accepted again.
drop view if exists fence_forget;
create view fence_forget (prefix) as
select resource from fence;

create trigger fence_forget_by_prefix instead of insert on fence_forget begin
    select raise(abort, 'ZF003 the prefix is malformed') where typeof(new.prefix) <> 'text';
    update fence set holder = ' forgotten'
    where substr(cast(resource as blob), 1, length(cast(new.prefix as blob)))
        = cast(new.prefix as blob);
    delete from fence where holder = ' forgotten';
end;

-- The resources whose rows in protected tables this transaction may write, each with the token of its own lock. An
-- insert claims the resource at once. The rows must be deleted before the commit, which otherwise fails: it checks
-- the foreign key, which no row can satisfy.
--
-- SQLite counts violated foreign keys, and does not remember which. So a presented row outlives its commit if the
-- same transaction removes a row of another table that violated its own key before. Therefore a presented row is
-- void once the fence has moved on, and it gives way to the next token.
create table if not exists fence_presented (
    resource text not null primary key,
    token integer not null,
    holder text not null default '',
    deleted_before_commit integer not null default 1
        references fence_no_rows (id) deferrable initially deferred
) strict, without rowid;

create table if not exists fence_no_rows (
    id integer not null primary key check (false)
) strict;

drop trigger if exists fence_presented_claims;
create trigger fence_presented_claims before insert on fence_presented begin
    select raise(abort, 'ZF006 needed on this connection: pragma foreign_keys = on')
    where not (select foreign_keys from pragma_foreign_keys);
    insert into fence_claim values (new.resource, new.token, new.holder);
    delete from fence_presented
    where resource = new.resource and (token, holder) <> (new.token, new.holder);
end;

drop trigger if exists fence_presented_is_not_changed;
create trigger fence_presented_is_not_changed before update on fence_presented begin
    select raise(abort, 'ZF004 a presented row cannot be updated: delete it and insert a new one');
end;

release fence_0001;
