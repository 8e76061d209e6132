"""Types for what rules name, for what buckets belong to, and for Kafka's eight levels of rules between them."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule


class Tags(NamedTuple):
    """The key of a bucket. ``user`` or ``client_id`` is empty if all users or client-ids share the bucket."""

    user: str
    client_id: str


class Level(NamedTuple):
    """One of Kafka's eight levels of rules, by which a more specific rule takes precedence over a more general one.

    It determines which rule is looked up for a client, and which clients share a bucket under this rule.
    """

    number: int
    says: str
    # True for an entity with a named user, False for the default user, None if the entity has no user. The same holds
    # for the client-id.
    user: bool | None
    client_id: bool | None

    def entity(self, user: str, client_id: str) -> tuple[EntityName, EntityName]:
        """Return the user and client-id in the rule that is looked up for a client at this level of precedence.

        Each of the two is the client's own name, ``<default>``, or None if rules of this level do not contain a user or
        a client-id.
        """
        return _name(self.user, user), _name(self.client_id, client_id)

    def tags(self, user: str, client_id: str) -> tuple[str, str]:
        """Return the tags of the bucket that a client with this user and client-id has under a rule of this level."""
        return "" if self.user is None else user, "" if self.client_id is None else client_id


def _name(by_name: bool | None, actual: str) -> EntityName:
    if by_name is None:
        return None
    return actual if by_name else DEFAULT


LEVELS: Final = (
    Level(1, "user, client-id", True, True),
    Level(2, "user, default client-id", True, False),
    Level(3, "user", True, None),
    Level(4, "default user, client-id", False, True),
    Level(5, "default user, default client-id", False, False),
    Level(6, "default user", False, None),
    Level(7, "client-id", None, True),
    Level(8, "default client-id", None, False),
)

Entity = tuple[EntityName, EntityName]  # user and client-id of a rule


class Resolution(NamedTuple):
    """The tags of the bucket of a user and client-id, and the rule that applies to this bucket, if there is one."""

    tags: Tags
    rule: QuotaRule | None
    level: Level | None
    limit: float | None  # in the unit of the kind of quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The rule that one of Kafka's eight levels of precedence has for a client, and why it does or does not apply."""

    level: Level
    rule: QuotaRule | None  # None if the level has no rule
    wins: bool
    reason: str
