"""What the checks of one kind of quota share: which bucket a client has, and the oracle of each bucket."""

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.entities import Limit, Tags
from tests.simulation.checks.flow import Flow
from tests.simulation.checks.possible_rules import PossibleRules
from tests.simulation.checks.settings import SETTLE_MS, Settings

if TYPE_CHECKING:
    from tests.simulation.ledger import Entity, Exchange
    from tests.simulation.world import World


class BucketKey(NamedTuple):
    """A bucket: a broker, and whose requests are counted."""

    node_id: int
    tags: Tags


class BucketCheck(Check):
    """Keeps a ``Flow`` for each bucket of one kind of quota, and forgets them when the proxy does.

    Attributes:
        kind: The key of the quota.
        judges: Whether the rules are settled, and the proxy throttles.
    """

    kind: ClassVar[str]

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.settings: Settings = world.settings
        self._rules = PossibleRules(((),), self.kind, self.settings)
        self._settled_ms = 0.0
        self._has_rules = False
        self._flows: dict[BucketKey, Flow] = {}
        self._tags_seen: dict[int, set[Tags]] = {}

    @property
    def judges(self) -> bool:
        """Whether a limit must be kept now."""
        return not self.ledger.is_stopping and self.world.clock.now_ms >= self._settled_ms

    def limit_of(self, entity: "Entity") -> tuple[Tags, Limit | None]:
        """Return the tags of an entity's bucket, and its limit if one is enforced."""
        return self._rules.bucket(entity.user, entity.client_id)

    def flow_of(self, exchange: "Exchange") -> Flow | None:
        """Return the oracle of the bucket of a request that was forwarded. None: nothing limits it, or not surely."""
        if exchange.is_inter_broker or exchange.forwarded_to is None or not self.judges:
            return None
        tags, limit = self.limit_of(exchange.entity)
        if limit is None:
            return None
        # Beyond the most buckets, clients share one, or are forgotten.
        seen = self._tags_seen.setdefault(exchange.forwarded_to, set())
        seen.add(tags)
        if len(seen) >= self.settings.max_buckets:
            return None
        key = BucketKey(exchange.forwarded_to, tags)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = self.new_flow(limit)
        return flow

    def new_flow(self, limit: Limit) -> Flow:
        """Return the oracle of a new bucket."""
        return Flow(limit, self.settings, self.world.clock.now_ms)

    def rules_changed(self, *possible: Quotas) -> None:
        """Begin anew once the new rules have settled: a bucket is then at its best.

        While nobody knows which rules hold, nothing is judged.
        """
        quotas = possible[0] if len(possible) == 1 else ()
        self.settings = self.world.settings
        self._rules = PossibleRules((quotas,), self.kind, self.settings)
        self._settled_ms = self.world.clock.now_ms + SETTLE_MS if self._has_rules else 0.0
        self._has_rules = True
        self.forget()

    def proxy_started(self, number: int) -> None:
        """Begin anew: a new process knows nothing of before, and reads the rules as they are now."""
        self._has_rules = False
        self.forget()

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """Begin anew."""
        self.forget()

    def forget(self) -> None:
        """Forget all buckets."""
        self._flows.clear()
        self._tags_seen.clear()
