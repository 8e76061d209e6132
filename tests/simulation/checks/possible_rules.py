"""The rules of one kind of quota, where nobody can say which of several sets of rules is in force."""

from collections.abc import Iterable, Sequence

from tests.simulation.checks.check import Quotas
from tests.simulation.checks.entities import Limit, Rules, Tags
from tests.simulation.checks.settings import Settings

_NOWHERE: Tags = "", ""


class PossibleRules:
    """Sets of rules of one kind. One of them is in force.

    A client has a bucket here only if it has the same one in each set. The bucket's limit is the largest of all sets.
    """

    __slots__ = ("_buckets", "_limits", "_sets")

    def __init__(self, sets: Iterable[Quotas], kind: str, settings: Settings) -> None:
        self._sets: Sequence[Rules] = [Rules(quotas, kind, settings) for quotas in sets]
        self._limits: dict[Tags, Limit | None] = {}
        self._buckets: dict[tuple[str, str], tuple[Tags, Limit | None]] = {}

    def limit(self, tags: Tags) -> Limit | None:
        """Return the largest limit of a bucket. None: in one of the sets it has none, or one that is not enforced."""
        if tags not in self._limits:
            self._limits[tags] = self._largest(tags)
        return self._limits[tags]

    def _largest(self, tags: Tags) -> Limit | None:
        found: Limit | None = None
        for rules in self._sets:
            limit = rules.limit(tags)
            if limit is None or limit.enforcement == "observe":
                return None
            if found is not None and limit[1:] != found[1:]:
                return None
            found = limit if found is None else max(found, limit)
        return found

    def bucket(self, user: str, client_id: str) -> tuple[Tags, Limit | None]:
        """Return the tags of a client's bucket, and its limit if one is enforced whichever set is in force."""
        found = self._buckets.get((user, client_id))
        if found is None:
            tags = {rules.tags(user, client_id): None for rules in self._sets}
            first = next(iter(tags), _NOWHERE)
            found = self._buckets[user, client_id] = first, self.limit(first) if len(tags) == 1 else None
        return found
