"""The settings about users: which of them share a bucket, are exempt from quotas, are brokers, or may change quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# The principal of a connection that did not authenticate (KafkaPrincipal.ANONYMOUS).
ANONYMOUS: Final = "ANONYMOUS"
# The user of a connection with a login in which this proxy cannot read the user.
UNKNOWN: Final = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A rule that charges all users whose names match ``match`` to the bucket of the user ``to``."""

    match: str  # a regular expression, which must match the whole name
    to: str  # the name to charge, with \1 for what the first group matched


@dataclass(frozen=True, slots=True, kw_only=True)
class Principals:
    """The settings about users. A user is given by the name of its principal, without Kafka's prefix ``User:``."""

    fold: tuple[Fold, ...] = ()
    exempt: frozenset[str] = frozenset()
    brokers: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()  # may describe and alter client quotas through the proxy
