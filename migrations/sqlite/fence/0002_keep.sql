-- The fence inside SQLite: fences that no mistake deletes or lowers. Apply 0001_fence.sql first,
-- and 0003_protect.sql next. All files may be applied again.
--
-- It replaces three triggers of 0001_fence.sql: fence_claim_by_the_rule, fence_presented_claims and
-- fence_require_a_token. It adds a code:
--
--     ZF005  a fence is not lowered, and is deleted only through fence_forget

-- Each file is one transaction, also inside another one: no claim meets half of it.
savepoint fence_0002;

-- Changes in the rule's trigger: a holder conflict with an empty holder says so, and a database in
-- UTF-16 takes the same names and holders as one in UTF-8.
drop trigger if exists fence_claim_by_the_rule;
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
    select raise(
        abort, 'ZF002 the token belongs to another holder: one is empty, probably forgotten')
    from fence
    where resource = new.resource and token = new.token and holder <> new.holder
        and '' in (holder, new.holder);
    select raise(abort, 'ZF002 the token belongs to another holder: it was issued twice')
    from fence where resource = new.resource and token = new.token and holder <> new.holder;
    insert into fence values (new.resource, new.token, new.holder)
    on conflict do update set token = new.token, holder = new.holder where token < new.token;
end;

-- Statements on the table `fence` itself follow the rule, too. Holders contain no spaces, so
-- ' forgotten' can only come from `fence_forget`.
create trigger if not exists fence_is_not_replaced before insert on fence
when exists (
    select 1 from fence
    where resource = new.resource
        and (token > new.token or token = new.token and holder <> new.holder)
) begin
    select raise(abort, 'ZF005 a fence is never lowered');
end;

create trigger if not exists fence_is_not_lowered before update on fence
when new.resource <> old.resource or new.token < old.token
    or new.token = old.token and new.holder not in (old.holder, ' forgotten') begin
    select raise(abort, 'ZF005 a fence is never lowered');
end;

create trigger if not exists fence_is_not_deleted before delete on fence
when old.holder <> ' forgotten' begin
    select raise(abort, 'ZF005 to delete fences: insert into fence_forget values (prefix)');
end;

-- An insert into this view deletes the fences of all resources that begin with the prefix; ''
-- deletes all. From then on, each old token of these resources is accepted again.
create view if not exists fence_forget (prefix) as
select resource from fence;

create trigger if not exists fence_forget_by_prefix instead of insert on fence_forget begin
    select raise(abort, 'ZF003 the prefix is malformed') where typeof(new.prefix) <> 'text';
    update fence set holder = ' forgotten'
    where substr(cast(resource as blob), 1, length(cast(new.prefix as blob)))
        = cast(new.prefix as blob);
    delete from fence where holder = ' forgotten';
end;

-- SQLite counts violated foreign keys, and does not remember which. So a presented row outlives its
-- commit if the same transaction removes a row of another table that violated its own key before.
-- Two changes limit that: a presented row is void once the fence has moved on, and it gives way to
-- the next token.
drop trigger if exists fence_presented_claims;
create trigger fence_presented_claims before insert on fence_presented begin
    select raise(abort, 'ZF006 needed on this connection: pragma foreign_keys = on')
    where not (select foreign_keys from pragma_foreign_keys);
    insert into fence_claim values (new.resource, new.token, new.holder);
    delete from fence_presented
    where resource = new.resource and (token, holder) <> (new.token, new.holder);
end;

drop trigger if exists fence_require_a_token;
create trigger fence_require_a_token instead of insert on fence_require begin
    -- Without this setting, INSERT OR REPLACE fires no delete triggers.
    select raise(abort, 'ZF006 needed on this connection: pragma recursive_triggers = on')
    where not (select recursive_triggers from pragma_recursive_triggers);
    select raise(abort, 'ZF003 the row has no resource')
    where new.resource is null;
    select raise(abort, 'ZF004 a token is required, as the table is protected')
    where not exists (
        select 1 from fence_presented join fence using (resource, token, holder)
        where fence_presented.resource = cast(new.resource as text)
    );
end;

release fence_0002;
