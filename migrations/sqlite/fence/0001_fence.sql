-- The fence inside SQLite, 3.38 or newer. It may be applied again.
--
--     sqlite3 my.db < 0001_fence.sql
--
-- A transaction claims its resources, then reads, then writes. It claims each resource with the
-- token of the lock that guards it. It begins as IMMEDIATE, because a transaction that begins by
-- reading can't write any more once another connection has written:
--
--     begin immediate;
--     insert into fence_claim values ('alice', 34, 'me');
--     select balance from accounts where account_id = 'alice';
--     update accounts set balance = 70 where account_id = 'alice';
--     commit;
--
-- A refusal is an error whose message begins with one of these codes. Roll back after it. The table
-- `fence` has the fence's token.
--
--     ZF001  stale
--     ZF002  holder conflict
--     ZF003  malformed
--     ZF004  token required
--     ZF006  a setting of the connection is missing
--
-- migrations/README.md says what is guaranteed, and what is not.

-- The fences. A row is never deleted, and its token never falls.
create table if not exists fence (
    resource text not null primary key,
    token integer not null,
    holder text not null
) strict, without rowid;

-- An insert into this view claims a resource: it advances the fence inside the caller's
-- transaction, or raises a refusal.
create view if not exists fence_claim (resource, token, holder) as
select resource, token, holder from fence;

create trigger if not exists fence_claim_by_the_rule instead of insert on fence_claim begin
    select raise(abort, 'ZF003 the resource is malformed')
    where not (
        typeof(new.resource) = 'text' and length(cast(new.resource as blob)) between 1 and 512
    );
    select raise(abort, 'ZF003 the token is malformed')
    where not (typeof(new.token) = 'integer' and new.token between 1 and 999999999999999);
    select raise(abort, 'ZF003 the holder is malformed')
    where not (
        typeof(new.holder) = 'text'
        and length(cast(new.holder as blob)) <= 128
        and new.holder not glob '*[^!-~]*'
        -- The pattern matches only as far as the first null character.
        and instr(new.holder, char(0)) = 0
    );
    select raise(abort, 'ZF001 the token is stale: the fence is higher')
    from fence where resource = new.resource and token > new.token;
    select raise(abort, 'ZF002 the token belongs to another holder: it was issued twice')
    from fence where resource = new.resource and token = new.token and holder <> new.holder;
    insert into fence values (new.resource, new.token, new.holder)
    on conflict do update set token = new.token, holder = new.holder where token < new.token;
end;

-- The resources whose rows in protected tables this transaction may write, each with the token of
-- its own lock. An insert claims the resource at once. The rows must be deleted before the commit,
-- which otherwise fails: the commit checks the foreign key, which no row can satisfy. So no
-- transaction finds a row of the previous one.
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

create trigger if not exists fence_presented_claims before insert on fence_presented begin
    select raise(abort, 'ZF006 needed on this connection: pragma foreign_keys = on')
    where not (select foreign_keys from pragma_foreign_keys);
    insert into fence_claim values (new.resource, new.token, new.holder);
end;

create trigger if not exists fence_presented_is_not_changed before update on fence_presented begin
    select raise(abort, 'ZF004 a presented row cannot be updated: delete it and insert a new one');
end;

-- An insert of a row's resource into this view fails unless this transaction presents a token for
-- it. These three triggers protect a table:
--
--     create trigger accounts_fence_insert after insert on accounts
--     begin insert into fence_require values (new.account_id); end;
--
--     create trigger accounts_fence_update after update on accounts
--     begin insert into fence_require values (old.account_id), (new.account_id); end;
--
--     create trigger accounts_fence_delete after delete on accounts
--     begin insert into fence_require values (old.account_id); end;
create view if not exists fence_require (resource) as
select resource from fence;

create trigger if not exists fence_require_a_token instead of insert on fence_require begin
    -- Without this setting, INSERT OR REPLACE fires no delete triggers.
    select raise(abort, 'ZF006 needed on this connection: pragma recursive_triggers = on')
    where not (select recursive_triggers from pragma_recursive_triggers);
    select raise(abort, 'ZF003 the row has no resource')
    where new.resource is null;
    select raise(abort, 'ZF004 a token is required, as the table is protected')
    where not exists (
        select 1 from fence_presented where resource = cast(new.resource as text)
    );
end;
