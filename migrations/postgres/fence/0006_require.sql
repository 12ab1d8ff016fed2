-- The check of a row: replaces `require` of 0002_protect.sql. May be applied again.

-- Raises an error unless this transaction has claimed the resource, or can claim it with the token
-- that it presents. The trigger of a protected table calls it for each row.
create or replace function fence.verify(resource text)
returns boolean
language plpgsql security definer
as $$
declare
    presents pg_catalog.bool;
    passed pg_catalog.text;
begin
    -- After a transaction that set it, the setting is empty. No resource is.
    if pg_catalog.current_setting(fence.name_of_passed(), true)
        operator(pg_catalog.=) verify.resource collate pg_catalog."C"
        and verify.resource operator(pg_catalog.<>) ''::pg_catalog.text collate pg_catalog."C"
    then
        return true;
    end if;

    presents = pg_catalog.current_setting('fence.transaction', true)
        operator(pg_catalog.=) pg_catalog.pg_current_xact_id()::pg_catalog.text;
    if presents then
        -- The first statement of `claim`, copied: calling `claim` would double the cost.
        update fence.fence f
        set token = pg_catalog.current_setting('fence.token')::pg_catalog.int8,
            holder = pg_catalog.current_setting('fence.holder'),
            claimed_by = pg_catalog.pg_current_xact_id()
        where f.resource operator(pg_catalog.=) verify.resource collate pg_catalog."C"
            and fence.accepts(
                f.token, f.holder,
                pg_catalog.current_setting('fence.token')::pg_catalog.int8,
                pg_catalog.current_setting('fence.holder'))
            and f.claimed_by operator(pg_catalog.<>) pg_catalog.pg_current_xact_id();
        if found then
            passed = pg_catalog.set_config(fence.name_of_passed(), verify.resource, true);
            return true;
        end if;
    end if;

    -- A row that was restored from another server may have this transaction's id by chance. So its
    -- xmin must not be older than the transaction, as it is in a row that the transaction wrote.
    perform from fence.fence f
    where f.resource operator(pg_catalog.=) verify.resource collate pg_catalog."C"
        and f.claimed_by operator(pg_catalog.=) pg_catalog.pg_current_xact_id()
        and pg_catalog.age(f.xmin) operator(pg_catalog.<=)
            pg_catalog.age(pg_catalog.pg_current_xact_id()::pg_catalog.xid);
    if found then
        passed = pg_catalog.set_config(fence.name_of_passed(), verify.resource, true);
        return true;
    end if;

    if presents then
        perform fence.claim_otherwise(
            verify.resource collate pg_catalog."C",
            pg_catalog.current_setting('fence.token')::pg_catalog.int8,
            pg_catalog.current_setting('fence.holder'));
        passed = pg_catalog.set_config(fence.name_of_passed(), verify.resource, true);
        return true;
    end if;
    if verify.resource is null then
        perform fence.refuse_malformed(verify.resource, null::pg_catalog.int8);
    end if;
    raise exception using
        errcode = 'ZF004',
        message = pg_catalog.format(
            'a token is required for %L, as the table is protected', verify.resource),
        detail = pg_catalog.json_build_object('resource', verify.resource),
        hint = 'In the same transaction, call fence.claim(resource, token, holder) before you read'
            ', or fence.present(token, holder) before a write that depends on nothing read.';
end
$$;

-- Tables that version 1 protected call `require`.
create or replace function fence.require(resource text)
returns void
language plpgsql
as $$
begin
    perform fence.verify(require.resource);
end
$$;
