"""User names: which share a bucket, which are exempt, and which have rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The principal of a connection that did not authenticate (KafkaPrincipal.ANONYMOUS).
ANONYMOUS: Final = "ANONYMOUS"
# The user of a connection that did, in a way that does not tell this proxy who it is. Unlike Kafka, which always knows.
UNKNOWN: Final = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Principals whose name matches ``match`` (searched from start to end) share the bucket of ``to``."""

    match: str  # a regular expression
    to: str  # its replacement, with \1 for groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Principals:
    """Rules about user names. They act on the principal's name without ``User:``."""

    fold: tuple[Fold, ...] = ()
    exempt: frozenset[str] = frozenset()
    brokers: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()  # who may ask for client quotas here, and change them
    forward_quota_requests: bool = False  # True: who is not of these asks the broker; else he is refused
