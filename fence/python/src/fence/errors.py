"""The errors of a fenced transaction. Unless one says otherwise, nothing was committed."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional

import psycopg


class FenceError(Exception):
    """An error of the fence. If the driver raised one, that is its `__cause__`."""

    def __init__(self, message: str, detail: Mapping[str, Any] = {}) -> None:
        super().__init__(message)
        self.resource: Optional[str] = detail.get("resource")
        self.token: Optional[int] = detail.get("token")
        self.highest_token: Optional[int] = detail.get("highest_token")


class Rejected(FenceError):
    """The rule rejected the token. Discard what was read, and start again from the lock."""


class Stale(Rejected):
    """The token is below the fence: the lock was granted to another client since."""


class HolderConflict(Rejected):
    """The fence's token belongs to another holder: the lock service issued it twice."""


class Malformed(FenceError):
    """The resource, the token or the holder is malformed."""


class TokenRequired(FenceError):
    """The transaction wrote to a protected table without a token for the row's resource."""


class TruncateRejected(FenceError):
    """The transaction truncated a protected table."""


class Contended(FenceError):
    """Another transaction got in between, or a wait timed out. Retry the whole transaction."""


class TransactionOpen(FenceError):
    """A transaction was open already, so a claim might be newer than what it has read. Nothing was
    sent, and the open transaction is as it was."""


class NotCommitted(FenceError):
    """The block ended without an error, but its transaction had failed or ended before: the block
    caught the error of a statement, or committed or rolled back itself."""


class OutcomeUnknown(FenceError):
    """The answer to the commit was lost. Acquire a higher token, and claim and read with it: that
    shows whether the transaction was committed."""


_BY_SQLSTATE = {
    "ZF001": Stale,
    "ZF002": HolderConflict,
    "ZF003": Malformed,
    "ZF004": TokenRequired,
    "ZF005": TruncateRejected,
    # A snapshot older than another's claim, a deadlock, and lock_timeout.
    "40001": Contended,
    "40P01": Contended,
    "55P03": Contended,
}


def typed(error: psycopg.Error) -> Optional[FenceError]:
    """Returns the error that the driver's error means, if it is the fence's."""
    kind = _BY_SQLSTATE.get(error.sqlstate or "")
    if kind is None:
        return None
    message = error.diag.message_primary or str(error)
    if kind is Contended:
        return Contended(f"{message}: retry the whole transaction")
    return kind(message, _parsed(error.diag.message_detail))


def _parsed(detail: Optional[str]) -> Mapping[str, Any]:
    """The detail of a rejection. Any other, of the program's own functions, is left out."""
    try:
        parsed = json.loads(detail or "{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
