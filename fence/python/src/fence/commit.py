"""The commit of a fenced transaction, and what an error means before, during and after it."""

from __future__ import annotations

from typing import Any, Callable, Optional

import psycopg
from psycopg.pq import TransactionStatus

from .errors import NotCommitted, OutcomeUnknown, typed


#: The transaction that is open, or null. After a rollback in the block it may be another one.
CURRENT = "select cast(pg_catalog.pg_current_xact_id_if_assigned() as text)"


class Commit:
    """How far the commit of a transaction has got."""

    def __init__(self) -> None:
        self._transaction: Optional[str] = None
        self._has_begun = False
        self._has_ended = False

    def claimed(self, transaction: str) -> None:
        """Notes the transaction that has claimed."""
        self._transaction = transaction

    def begin(
        self, connection: psycopg.Connection[Any], current: Callable[[], Optional[str]]
    ) -> None:
        """Notes that the commit is sent next. Raises `NotCommitted` if it would commit nothing, or
        another transaction. `current` queries `CURRENT`.

        PostgreSQL answers the commit of a failed transaction with a rollback, and no driver
        reports that.
        """
        is_open = connection.info.transaction_status == TransactionStatus.INTRANS
        self.require(is_open and current() == self._transaction)
        self._has_begun = True

    def require_begun(self) -> None:
        """Raises `NotCommitted` unless the commit has begun."""
        self.require(self._has_begun)

    @staticmethod
    def require(can_commit: bool) -> None:
        """Raises `NotCommitted` unless the transaction can be committed."""
        if not can_commit:
            raise NotCommitted(
                "nothing was committed at the end of the block: its transaction had failed, and "
                "the block caught the error, or the block itself had ended the transaction"
            )

    def end(self) -> None:
        """Notes a commit. If it is this one, errors that come later are not the transaction's."""
        self._has_ended = self._has_begun

    def raise_typed(self, error: Optional[BaseException]) -> None:
        """Raises the fence's error, if this error of psycopg means one."""
        if self._has_ended or not isinstance(error, psycopg.Error):
            return
        meant = typed(error)
        if self._has_begun and not _proves_a_rollback(error):
            meant = OutcomeUnknown(
                "the answer to the commit was lost: the transaction may be committed, or not"
            )
        if meant is not None:
            raise meant from error


def _proves_a_rollback(error: psycopg.Error) -> bool:
    """Whether this error of a commit proves that nothing was committed.

    The server's error does, unless it is fatal: that may also come after the commit. Misuse that
    psycopg itself finds was never sent. Any other error is of a connection that was lost.
    """
    is_of_the_server = error.diag.severity_nonlocalized == "ERROR"
    return is_of_the_server or isinstance(error, psycopg.ProgrammingError)


def psycopg_connection(driver_connection: Any) -> psycopg.Connection[Any]:
    """The connection below SQLAlchemy or Django, which may also run on other drivers."""
    if not isinstance(driver_connection, psycopg.Connection):
        kind = type(driver_connection)
        raise TypeError(f"the driver must be psycopg 3, not {kind.__module__}.{kind.__qualname__}")
    return driver_connection
