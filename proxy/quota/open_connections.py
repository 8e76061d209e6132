"""Limits how many connections a user or client-id has open at once at one broker: the quota ``connections``.

Kafka has no such quota. Rules are looked up as for Kafka's other quotas, by eight levels of precedence (see
``entity``). The rule that is found decides which connections are counted together, and which limit applies.
"""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, TypeVar

from kafka_quota_proxy.proxy.quota.entity import Resolution, Tags
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable, bounded

_K = TypeVar("_K", bound=Hashable)
# A function that takes a principal, and returns the user that it counts as and whether it is exempt.
ChargedUser = Callable[[str], tuple[str, bool]]


class Identity(NamedTuple):
    """The principal and client-id for which an open connection is counted."""

    principal: str
    client_id: str


class ConnectionCheck(NamedTuple):
    """The limit that applies to a new connection, and how many open connections count towards this limit now."""

    found: Resolution | None  # None if the principal is exempt
    open_now: int

    @property
    def exceeded(self) -> Resolution | None:
        """The rule and limit that one more connection would exceed, or None if the connection is within the limit."""
        limit = self.found.limit if self.found else None
        return self.found if limit is not None and self.open_now >= limit else None


class OpenConnections:
    """Counts the open connections of one broker, each for the first principal and client-id that it has.

    Several brokers may share ``table``, which contains the limits. After a change of the table, ``rules_changed`` must
    be called for each broker.
    """

    def __init__(self, table: RuleTable, charged_user: ChargedUser) -> None:
        self.table: Final = table
        self._charged_user = charged_user
        # The connections are counted by identity, so that they can be counted again under new rules, and by bucket,
        # for the check of each new connection.
        self._by_identity: dict[Identity, int] = {}
        self._by_tags: dict[Tags, int] = {}
        # The rule that applies to each identity with open connections.
        self._found: dict[Identity, Resolution | None] = {}

    def rules_changed(self, charged_user: ChargedUser) -> None:
        """Count the open connections again under changed rules or principals. No connection is closed."""
        self._charged_user = charged_user
        self._recount()

    def open_now(self) -> dict[Tags, int]:
        """Return the number of open connections, by the tags under which they are counted. Any thread may call this."""
        return self._by_tags.copy()

    def check(self, identity: Identity) -> ConnectionCheck:
        """Return the limit for a new connection of this client, and how many open connections count towards it."""
        found = self._found[identity] if identity in self._found else self._find(identity)
        return ConnectionCheck(found, self._by_tags.get(found.tags, 0) if found else 0)

    def enter(self, identity: Identity, check: ConnectionCheck) -> None:
        """Count a new connection as open, until ``leave``. ``check`` must be the result of ``self.check(identity)``."""
        self._found[identity] = check.found
        self._add(identity, 1)

    def leave(self, identity: Identity) -> None:
        """Stop counting a connection, because it has ended."""
        self._add(identity, -1)
        if identity not in self._by_identity:
            del self._found[identity]

    def _recount(self) -> None:
        self._by_tags = {}
        for identity, count in self._by_identity.items():
            found = self._found[identity] = self._find(identity)
            if found is not None:
                self._by_tags[found.tags] = self._by_tags.get(found.tags, 0) + count

    def _add(self, identity: Identity, more: int) -> None:
        _count(self._by_identity, identity, more)
        found = self._found[identity]
        if found is not None:
            _count(self._by_tags, found.tags, more)

    def _find(self, identity: Identity) -> Resolution | None:
        user, is_exempt = self._charged_user(identity.principal)
        if is_exempt:
            return None
        return self.table.resolve(user=bounded(user), client_id=bounded(identity.client_id))


def _count(counts: dict[_K, int], key: _K, more: int) -> None:
    count = counts.get(key, 0) + more
    if count:
        counts[key] = count
    else:
        del counts[key]
