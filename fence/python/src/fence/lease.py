"""Leases: what a transaction claims with."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Iterable, Optional, Protocol, Union


class AnyLease(Protocol):
    """Anything with a resource, a token and a holder."""

    @property
    def resource(self) -> str: ...

    @property
    def token(self) -> int: ...

    @property
    def holder(self) -> str: ...


#: One lease, several, or the token of one.
LeaseOrToken = Union[AnyLease, Iterable[AnyLease], int]


@dataclass(frozen=True)
class Lease:
    """A held lock. The holder is the proof of holding, so it is not printed."""

    resource: str
    token: int
    holder: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls) -> Lease:
        """The lease of `lock-client run`, whose command this process is.

        Raises `LookupError` outside such a run.
        """
        names = ("FENCING_RESOURCE", "FENCING_TOKEN", "FENCING_HOLDER")
        missing = [name for name in names if name not in os.environ]
        if missing:
            raise LookupError(f"{missing[0]} is not set: run this program by `lock-client run`")
        resource, token, holder = (os.environ[name] for name in names)
        return cls(resource, int(token), holder)

    @classmethod
    def from_json(cls, text: Union[str, bytes]) -> Lease:
        """The lease in a JSON object: the handle that `lock-client acquire` prints."""
        handle = json.loads(text)
        resource = handle["name"] if "name" in handle else handle["resource"]
        return cls(resource, handle["token"], handle["holder"])


def in_claim_order(
    lease_or_token: LeaseOrToken, resource: Optional[str], holder: str
) -> list[AnyLease]:
    """Returns the leases in the byte order of their resources, in which claims can't deadlock."""
    leases: list[AnyLease]
    if isinstance(lease_or_token, int):
        if resource is None:
            raise TypeError("a token alone does not say what to claim: give its resource, too")
        leases = [Lease(resource, lease_or_token, holder)]
    elif resource is not None or holder:
        raise TypeError("a lease has a resource and a holder of its own")
    elif isinstance(lease_or_token, Iterable):
        leases = list(lease_or_token)
    else:
        leases = [lease_or_token]
    if not leases:
        raise ValueError("there is no lease to claim with")
    return sorted(leases, key=lambda lease: lease.resource.encode())
