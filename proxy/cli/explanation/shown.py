"""What both forms show of a rule: whom it is for, and its limit."""

from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.model import UNLIMITED, QuotaRule

OWN_RULE: Final = "the address has a rule of its own"


def entity(rule: QuotaRule) -> Mapping[str, str]:
    """Return whom a rule is for, by Kafka's names of entity types."""
    names = {"user": rule.user, "client-id": rule.client_id}
    return {key: str(name) for key, name in names.items() if name is not None}


def limit_of(key: str, rule: QuotaRule) -> float | None:
    """Return what a rule says of a kind of quota, in the unit of its key; None: nothing."""
    limit: float | None = getattr(rule, key)
    return limit


def number(limit: float | None) -> float:
    """Return a limit without a fraction where it is whole; for no limit, Kafka's number for none."""
    limit = UNLIMITED if limit is None else min(limit, UNLIMITED)
    return int(limit) if limit == int(limit) else limit
