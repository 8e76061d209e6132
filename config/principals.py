"""User names: which share a bucket, which are exempt, and which have rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The principal of a connection that did not authenticate (KafkaPrincipal.ANONYMOUS).
ANONYMOUS: Final = "ANONYMOUS"
# The user of a connection that did, by a mechanism whose user this proxy cannot read. Kafka itself always knows it.
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
    admins: frozenset[str] = frozenset()  # may describe and alter client quotas here
    forward_quota_requests: bool = False  # True: requests of other users go to the broker; False: they are refused
