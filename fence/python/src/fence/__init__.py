"""Fencing tokens, checked by PostgreSQL: claim first, then read, then write.

`fence` works on a connection of psycopg, `fence.sqlalchemy` on a session or connection of
SQLAlchemy, and `fence.django` on a connection of Django.
"""

from .errors import (
    Contended,
    FenceError,
    HolderConflict,
    Malformed,
    NotCommitted,
    OutcomeUnknown,
    Rejected,
    Stale,
    TokenRequired,
    TransactionOpen,
    TruncateRejected,
)
from .lease import Lease
from .psycopg import fenced, protect

__all__ = [
    "Contended",
    "FenceError",
    "HolderConflict",
    "Lease",
    "Malformed",
    "NotCommitted",
    "OutcomeUnknown",
    "Rejected",
    "Stale",
    "TokenRequired",
    "TransactionOpen",
    "TruncateRejected",
    "fenced",
    "protect",
]
