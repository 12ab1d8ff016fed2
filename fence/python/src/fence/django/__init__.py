"""Fenced transactions with Django on psycopg 3.

With `fence.django` in `INSTALLED_APPS`, each `migrate` ends by protecting the tables that the
setting `FENCE_TABLES` maps to the columns that name their rows' resources.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Iterator, Optional

from django.db import Error, transaction

from ..commit import CURRENT, Commit, psycopg_connection
from ..errors import NotCommitted, TransactionOpen
from ..lease import LeaseOrToken, in_claim_order

__all__ = ["fenced"]

_CLAIM = "select cast(pg_catalog.pg_current_xact_id() as text), fence.claim(%s, %s, %s)"


@contextmanager
def fenced(
    connection: Any,
    lease_or_token: LeaseOrToken,
    *,
    resource: Optional[str] = None,
    holder: str = "",
) -> Iterator[None]:
    """Begins a transaction, claims, runs the block, and commits; or rolls back, after any error.

    The connection is `django.db.connection`, or one of `django.db.connections`. The rest is as with
    `fence.fenced`. Inside the transaction that a `TestCase` keeps around each test, the block is a
    savepoint.
    """
    leases = in_claim_order(lease_or_token, resource, holder)
    is_in_test_case = connection.in_atomic_block
    if not connection.in_atomic_block and not connection.get_autocommit():
        raise TransactionOpen("the connection does not autocommit: a transaction may be open")
    commit = Commit()
    try:
        with ExitStack() as stack:
            try:
                stack.enter_context(transaction.atomic(using=connection.alias, durable=True))
            except RuntimeError as error:
                raise TransactionOpen(
                    "an atomic block is open: leave it, or mark the view @non_atomic_requests"
                ) from error
            if not is_in_test_case:
                # The first of the callbacks: the errors of others come after the commit.
                transaction.on_commit(commit.end, using=connection.alias)
            driver = psycopg_connection(connection.connection)

            def first(sql: str, *parameters: Any) -> Any:
                with connection.cursor() as cursor:
                    cursor.execute(sql, parameters or None)
                    return cursor.fetchone()[0]

            for lease in leases:
                commit.claimed(first(_CLAIM, lease.resource, lease.token, lease.holder))
            yield
            if connection.needs_rollback:
                raise NotCommitted(
                    "nothing was committed at the end of the block: an inner block had marked its "
                    "transaction for a rollback"
                )
            commit.begin(driver, lambda: first(CURRENT))
    except Error as error:
        commit.raise_typed(error.__cause__)
        raise
