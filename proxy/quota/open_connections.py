"""How many connections a user or client-id may have open at once, at one broker: ``connections`` of a rule.

Not one of Kafka's quotas, but of their form: who is counted, and which limit holds, is found as for any other, by the
eight levels. There is no rate and nothing to be remembered, so who has no connection takes no memory.
"""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, TypeVar

from kafka_quota_proxy.proxy.quota.entity import Resolution, RuleTable, Tags, bounded

_K = TypeVar("_K", bound=Hashable)
# Takes a principal; returns whose limit holds, and whether none does.
ChargedUser = Callable[[str], tuple[str, bool]]


class Identity(NamedTuple):
    """As whom a connection was counted."""

    principal: str
    client_id: str


class ConnectionCheck(NamedTuple):
    """What holds for a connection that comes, and how many like it are open."""

    found: Resolution | None  # None: the principal is exempt
    open_now: int

    @property
    def exceeded(self) -> Resolution | None:
        """The limit that one more would be above; None: there is room."""
        limit = self.found.limit if self.found else None
        return self.found if limit is not None and self.open_now >= limit else None


class OpenConnections:
    """The open connections of one broker, each counted as whom it came as first.

    ``table`` may be one that others go by, too: whoever changes it has each of them ``follow``.
    """

    def __init__(self, table: RuleTable, charged_user: ChargedUser) -> None:
        self.table: Final = table
        self._charged_user = charged_user
        # By identity, so that new rules can count anew; by bucket, for each connection that comes.
        self._by_identity: dict[Identity, int] = {}
        self._by_tags: dict[Tags, int] = {}
        self._found: dict[Identity, Resolution | None] = {}  # of those who are there
        self.heir: OpenConnections | None = None  # what has absorbed this

    def follow(self, charged_user: ChargedUser) -> None:
        """Take it that rules have changed, or for whom they hold. Whoever is there stays, and counts anew."""
        self._charged_user = charged_user
        self._count_anew()

    def absorb(self, other: "OpenConnections") -> None:
        """Count those of ``other``, too, which has turned out to be the same broker's: they leave here."""
        for identity, count in other._by_identity.items():  # noqa: SLF001 - another one of the same class
            self._by_identity[identity] = self._by_identity.get(identity, 0) + count
        self._count_anew()
        other.heir = self

    def _count_anew(self) -> None:
        self._by_tags = {}
        for identity, count in self._by_identity.items():
            found = self._found[identity] = self._find(identity)
            if found is not None:
                self._by_tags[found.tags] = self._by_tags.get(found.tags, 0) + count

    def open_now(self) -> dict[Tags, int]:
        """Return how many are open, by bucket; those of exempt principals are in none. Safe from a thread."""
        return self._by_tags.copy()

    def check(self, identity: Identity) -> ConnectionCheck:
        """Return what holds for one more connection of ``identity``."""
        found = self._found[identity] if identity in self._found else self._find(identity)
        return ConnectionCheck(found, self._by_tags.get(found.tags, 0) if found else 0)

    def enter(self, identity: Identity, standing: ConnectionCheck) -> None:
        """Count a connection, of which ``standing`` was just found, until it is to ``leave``."""
        self._found[identity] = standing.found
        self._add(identity, 1)

    def leave(self, identity: Identity) -> None:
        """Take it that a connection that was counted has ended."""
        if self.heir is not None:
            self.heir.leave(identity)
            return
        self._add(identity, -1)
        if identity not in self._by_identity:
            del self._found[identity]

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
