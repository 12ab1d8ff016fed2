-- The fence from psql, on a table that an administrator has protected with
-- `select fence.protect('accounts', 'account_id')`:
--
--     psql --file account.sql "$DATABASE_URL"

\set ON_ERROR_STOP on

-- A write that depends on nothing read presents its token, in the same transaction.
begin;
select fence.present(34, 'me');
update accounts set balance = 70 where account_id = 'alice';
commit;

-- A late one with an older token is rejected. The commit of a failed transaction is a rollback.
\set ON_ERROR_STOP off
begin;
select fence.present(33, 'late');
update accounts set balance = 0 where account_id = 'alice';
\set sqlstate :SQLSTATE
commit;
\set ON_ERROR_STOP on
select :'sqlstate' = 'ZF001' as rejected \gset
\if :rejected
\else
    do $$ begin raise 'the write with token 33 was not rejected as stale'; end $$;
\endif

-- PL/pgSQL also gets at the error's detail, which says how high the fence is.
do $$
declare
    detail text;
begin
    perform fence.present(33, 'late');
    update accounts set balance = 0 where account_id = 'alice';
    raise 'the write with token 33 was not rejected';
exception
    when sqlstate 'ZF001' then
        get stacked diagnostics detail = pg_exception_detail;
        assert (detail::json ->> 'resource') = 'alice', detail;
        assert (detail::json ->> 'token')::bigint = 33, detail;
        assert (detail::json ->> 'highest_token')::bigint = 34, detail;
end
$$;

-- A write that presents no token is rejected too.
do $$
begin
    update accounts set balance = 0 where account_id = 'alice';
    raise 'the write without a token was not rejected';
exception
    when sqlstate 'ZF004' then null;
end
$$;

-- A write that depends on what it reads claims before it reads.
begin;
select fence.claim('alice', 34, 'me');
select balance = 70 as unchanged, balance + 5 as new_balance
from accounts where account_id = 'alice' \gset
\if :unchanged
\else
    do $$ begin raise 'a write that was rejected has changed the balance'; end $$;
\endif
update accounts set balance = :new_balance where account_id = 'alice';
commit;
