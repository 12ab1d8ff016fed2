"""Fenced transactions with psycopg 3."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Optional

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from .commit import CURRENT, Commit
from .errors import TransactionOpen
from .lease import LeaseOrToken, in_claim_order
from .tables import Resource, protections

_CLAIM = "select cast(pg_catalog.pg_current_xact_id() as text), fence.claim(%s, %s, %s)"


@contextmanager
def fenced(
    connection: psycopg.Connection[Any],
    lease_or_token: LeaseOrToken,
    *,
    resource: Optional[str] = None,
    holder: str = "",
) -> Iterator[None]:
    """Begins a transaction, claims, runs the block, and commits; or rolls back, after any error.

    A token alone needs its `resource`, and may have its `holder`. Several leases are claimed in the
    byte order of their resources.

    Raises `TransactionOpen` inside another transaction: its reads may be older than the claim, and
    a rejection would leave the work that was based on them. A connection that doesn't autocommit is
    in a transaction from its first statement on.
    """
    leases = in_claim_order(lease_or_token, resource, holder)
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise TransactionOpen("the connection is in a transaction: commit or roll back first")
    commit = Commit()
    try:
        with connection.transaction():
            # The connection's own cursors may return rows of another kind.
            cursor = psycopg.Cursor(connection, row_factory=tuple_row)

            def first(sql: str, *parameters: Any) -> Any:
                row = cursor.execute(sql, parameters or None).fetchone()
                return row and row[0]

            for lease in leases:
                # In a pipeline, only the row proves that the claim was accepted.
                commit.claimed(first(_CLAIM, lease.resource, lease.token, lease.holder))
            yield
            commit.begin(connection, lambda: first(CURRENT))
        # `psycopg.Rollback` ends its transaction without an error.
        commit.require_begun()
    except psycopg.Error as error:
        commit.raise_typed(error)
        raise


def protect(connection: psycopg.Connection[Any], tables: Mapping[str, Resource]) -> None:
    """Protects tables, again or for the first time, in the caller's transaction.

    `tables` maps the name of each table to the column that names a row's resource, or to that
    column and a prefix. Call this after every migration: a table that was rebuilt has lost its
    triggers.
    """
    for protection in protections(tables):
        connection.execute("select fence.protect(%s::regclass, %s, prefix => %s)", protection)
