-- Claims and presented tokens, second version: replaces `claim`, `claim_otherwise` and
-- `present` of 0001_fence.sql. May be applied again.
--
-- Every constant is cast to the type of its parameter. A constant without a type, such as null,
-- would prefer another function of that name, if somebody could create one in this schema.

-- Claims a resource: advances its fence inside the caller's transaction and holds it until the
-- transaction ends, or raises a refusal.
--
-- A claim writes the row even if the fence stays the same. Otherwise a transaction with an older
-- snapshot (REPEATABLE READ, SERIALIZABLE) could claim after the latest write and not see that
-- write. As it is, the claim fails with 40001.
create or replace function fence.claim(resource text, token bigint, holder text default '')
returns void
language plpgsql security definer
as $$
declare
    passed pg_catalog.text;
begin
    update fence.fence f
    set token = claim.token, holder = claim.holder, claimed_by = pg_catalog.pg_current_xact_id()
    -- The arguments may come from columns with other collations.
    where f.resource operator(pg_catalog.=) claim.resource collate pg_catalog."C"
        and fence.accepts(f.token, f.holder, claim.token, claim.holder collate pg_catalog."C")
        and f.claimed_by operator(pg_catalog.<>) pg_catalog.pg_current_xact_id();
    if not found then
        perform fence.claim_otherwise(
            claim.resource collate pg_catalog."C", claim.token, claim.holder);
    end if;
    -- `verify` need not look.
    passed = pg_catalog.set_config(fence.name_of_passed(), claim.resource, true);
end
$$;

-- The rest of `claim`: the resource has no fence yet, or its fence refuses, or this transaction has
-- already claimed it.
create or replace function fence.claim_otherwise(resource text, token bigint, holder text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    seen fence.fence;
begin
    if (octet_length(resource) between 1 and 512 and fence.accepts(0::bigint, null::text, token, holder))
        is not true
    then
        perform fence.refuse_malformed(resource, token);
    end if;

    -- 1. This transaction may have claimed the resource already.
    perform from fence.fence f
    where f.resource = claim_otherwise.resource and f.token = claim_otherwise.token
        and f.holder = claim_otherwise.holder and f.claimed_by = pg_current_xact_id()
        -- A row of a restored backup may have the same id by chance: see `require`.
        and age(f.xmin) <= age(pg_current_xact_id()::xid);
    if found then
        return;
    end if;

    -- 2. Insert the first fence, or apply the rule to the latest row, which the upsert locks.
    insert into fence.fence as f values (resource, token, holder, pg_current_xact_id())
    on conflict on constraint fence_pkey do update
    set token = excluded.token, holder = excluded.holder, claimed_by = excluded.claimed_by
    where fence.accepts(f.token, f.holder, excluded.token, excluded.holder);
    if found then
        return;
    end if;

    -- 3. The rule has refused.
    select * into strict seen from fence.fence f where f.resource = claim_otherwise.resource;
    if seen.token > token then
        raise exception using
            errcode = 'ZF001',
            message = format(
                'token %s is stale: the fence of %L is at %s', token, resource, seen.token),
            detail = json_build_object(
                'resource', resource, 'token', token, 'highest_token', seen.token);
    end if;
    raise exception using
        errcode = 'ZF002',
        message = format(
            'token %s of %L belongs to another holder: it was issued twice', token, resource),
        detail = json_build_object(
            'resource', resource, 'token', token, 'highest_token', seen.token),
        hint = case ''
            when seen.holder then 'The holder in the fence is empty: it was probably forgotten.'
            when holder then 'The holder offered is empty: it was probably forgotten.'
            else 'The lock service lost its counter: the lock must be acquired again.'
        end;
end
$$;

-- Presents a token and holder for this transaction's blind writes to protected tables. A written
-- row claims its resource with them, unless the transaction has already claimed the resource.
create or replace function fence.present(token bigint, holder text default '')
returns void
language plpgsql
as $$
begin
    if fence.accepts(
        0::pg_catalog.int8, null::pg_catalog.text, present.token, present.holder) is not true
    then
        perform fence.refuse_malformed('any'::pg_catalog.text, present.token);
    end if;
    -- The transaction's id marks the settings as its own. A setting of the session, left by a
    -- previous user of the connection, has none.
    perform
        pg_catalog.set_config(
            'fence.transaction', pg_catalog.pg_current_xact_id()::pg_catalog.text, true),
        pg_catalog.set_config('fence.token', present.token::pg_catalog.text, true),
        pg_catalog.set_config('fence.holder', present.holder, true);
end
$$;
