"""Fenced transactions with SQLAlchemy 2 on psycopg 3 (`postgresql+psycopg`)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Optional, Union

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, scoped_session

from .commit import CURRENT, Commit, psycopg_connection
from .errors import TransactionOpen
from .lease import AnyLease, LeaseOrToken, in_claim_order
from .tables import Resource, protections

_CLAIM = text(
    "select cast(pg_catalog.pg_current_xact_id() as text), fence.claim(:resource, :token, :holder)"
)
_CURRENT = text(CURRENT)
_PROTECT = text("select fence.protect(cast(:table as regclass), :column, prefix => :prefix)")


@contextmanager
def fenced(
    target: Union[Session, scoped_session[Any], Connection],
    lease_or_token: LeaseOrToken,
    *,
    resource: Optional[str] = None,
    holder: str = "",
) -> Iterator[None]:
    """Begins a transaction of a session or connection, claims, runs the block, and commits; or
    rolls back, after any error.

    The session forgets what it loaded before: it was read before the claim. The rest is as with
    `fence.fenced`. A session is in a transaction from its first statement on.
    """
    leases = in_claim_order(lease_or_token, resource, holder)
    owner: Union[Session, Connection]
    owner = target() if isinstance(target, scoped_session) else target
    bind = owner.get_bind() if isinstance(owner, Session) else owner
    if owner.in_transaction() or isinstance(bind, Connection) and bind.in_transaction():
        raise TransactionOpen("a transaction has begun already: commit or roll back first")
    commit = Commit()
    try:
        with _noting_the_end(owner, commit), owner.begin() as transaction:
            connection = owner.connection() if isinstance(owner, Session) else owner
            driver = psycopg_connection(connection.connection.driver_connection)
            if driver.autocommit:
                raise ValueError("with AUTOCOMMIT, a claim would end with its own statement")
            for lease in leases:
                commit.claimed(_claim(connection, lease))
            if isinstance(owner, Session):
                owner.expire_all()
            yield
            # After a rollback, another user of the pool may have the driver's connection.
            commit.require(transaction.is_active)
            if isinstance(owner, Session):
                owner.flush()
            commit.begin(driver, lambda: connection.scalar(_CURRENT))
    except DBAPIError as error:
        commit.raise_typed(error.orig)
        raise


def protect(connection: Connection, tables: Mapping[str, Resource]) -> None:
    """Protects tables, again or for the first time, in the caller's transaction.

    `tables` maps the name of each table to the column that names a row's resource, or to that
    column and a prefix. With Alembic, call it in `env.py`, after `context.run_migrations()` and in
    the same transaction. A table that was rebuilt has lost its triggers, but then no other program
    sees it without them.
    """
    for table, column, prefix in protections(tables):
        connection.execute(_PROTECT, {"table": table, "column": column, "prefix": prefix})


def _claim(connection: Connection, lease: AnyLease) -> Any:
    """Claims, and returns the id of the transaction."""
    claim = {"resource": lease.resource, "token": lease.token, "holder": lease.holder}
    try:
        return connection.scalar(_CLAIM, claim)
    except DBAPIError as error:
        # The holder is the proof of holding. Errors are logged.
        error.hide_parameters = True
        raise


@contextmanager
def _noting_the_end(owner: Union[Session, Connection], commit: Commit) -> Iterator[None]:
    """Notes the end of a session's commit, before other listeners run and may fail."""
    if isinstance(owner, Connection):
        yield
        return

    def note(_session: Session) -> None:
        commit.end()

    event.listen(owner, "after_commit", note, insert=True)
    try:
        yield
    finally:
        event.remove(owner, "after_commit", note)
