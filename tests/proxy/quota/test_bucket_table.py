"""Who has a place, who makes room, and who never does: against a model that looks at everybody each time."""

from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_quota_proxy.proxy.quota.bucket_table import BucketTable
from kafka_quota_proxy.proxy.quota.entity import Tags

HOUR_MS = 3_600_000


@dataclass(eq=False)
class Tenant:
    tags: Tags
    owes_until_ms: float = 0
    holders: int = 0
    in_flight: int = 0
    is_listed: bool = False
    is_parked: bool = False


@dataclass
class House:
    """Places for a number of tenants, and how often each of them was looked at."""

    most: int
    named: set[Tags] = field(default_factory=set)
    looks: int = 0

    def __post_init__(self) -> None:
        self.gone: list[Tenant] = []
        self.places = BucketTable[Tenant](
            self.most, owes_until_ms=self._owes, is_named=self.named.__contains__, on_removed=self.gone.append
        )

    def _owes(self, tenant: Tenant, now_ms: int) -> float:
        self.looks += 1
        return tenant.owes_until_ms if tenant.owes_until_ms > now_ms else 0

    def come(self, name: str, *, now_ms: int = 0) -> Tenant | None:
        """Return the tenant of that name, a new one if there is room for it; else None."""
        tags = Tags("", name)
        tenant = self.places.get(tags)
        if tenant is None:
            if tags not in self.named and not self.places.make_room(now_ms=now_ms):
                return None
            tenant = Tenant(tags)
            self.places.add(tenant)
        return tenant

    def visit(self, name: str, *, now_ms: int = 0, owes_until_ms: float = 0) -> Tenant | None:
        """Come, hold, owe, let go."""
        tenant = self.come(name, now_ms=now_ms)
        if tenant is not None:
            tenant.holders += 1
            tenant.owes_until_ms = max(tenant.owes_until_ms, owes_until_ms)
            self.places.release(tenant, now_ms=now_ms)
        return tenant

    @property
    def names(self) -> str:
        return "".join(sorted(tenant.tags.client_id for tenant in self.places))


def test_bucket_released_first_is_evicted_first() -> None:
    house = House(3)
    for name in "abcab":
        house.visit(name)

    house.visit("d")
    assert house.names == "abd"
    assert [tenant.tags.client_id for tenant in house.gone] == ["c"]
    house.visit("e")
    assert house.names == "bde"
    assert house.places.evicted == 2


def test_held_bucket_is_never_evicted() -> None:
    house = House(2)
    held = house.visit("a")
    assert held is not None
    held.holders += 1

    for name in "bcdef":
        house.visit(name)

    assert house.names == "af"
    house.places.release(held, now_ms=0)
    house.visit("g")
    house.visit("h")
    assert house.names == "gh"


def test_bucket_held_twice_is_evicted_after_two_releases() -> None:
    house = House(1)
    held = house.visit("a")
    assert held is not None
    held.holders += 2

    house.places.release(held, now_ms=0)
    assert house.visit("b") is None
    house.places.release(held, now_ms=0)
    assert house.visit("b") is not None


def test_bucket_is_evicted_first_when_its_debt_ends() -> None:
    house = House(2)
    house.visit("a", owes_until_ms=1_000)
    house.visit("b", now_ms=1)

    house.visit("c", now_ms=999)
    assert house.names == "ac"
    house.visit("d", now_ms=1_000)
    assert house.names == "cd"


def test_no_bucket_is_evicted_while_all_owe() -> None:
    house = House(2)
    house.visit("a", owes_until_ms=1_000)
    house.visit("b", owes_until_ms=2_000)

    assert house.visit("c", now_ms=999) is None
    assert house.names == "ab"
    assert house.visit("c", now_ms=1_000) is not None
    assert house.names == "bc"


def test_bucket_that_came_to_owe_without_a_holder_is_not_evicted() -> None:
    """Whoever charges without holding must not make a debt vanish either."""
    house = House(1)
    tenant = house.visit("a")
    assert tenant is not None
    tenant.owes_until_ms = 1_000

    assert house.visit("b", now_ms=0) is None
    assert house.visit("b", now_ms=1_000) is not None


def test_bucket_with_requests_in_flight_is_not_evicted() -> None:
    house = House(1)
    tenant = house.visit("a")
    assert tenant is not None
    tenant.in_flight = 1

    assert house.visit("b", now_ms=0) is None
    tenant.in_flight = 0
    assert house.visit("b", now_ms=999) is None  # looked at once a second
    assert house.visit("b", now_ms=1_000) is not None


def test_named_buckets_do_not_count_and_are_never_evicted() -> None:
    house = House(2, named={Tags("", "x"), Tags("", "y")})
    for name in "axbycde":
        assert house.visit(name) is not None
        assert len(house.places) <= 2 + len([name for name in house.names if name in "xy"])

    assert house.names == "dexy"


def test_bucket_is_evicted_after_its_rule_is_removed() -> None:
    house = House(1, named={Tags("", "x")})
    house.visit("x")
    house.visit("a")

    house.named.clear()
    house.places.recount_named(house.named)
    house.visit("b", now_ms=60_000)
    house.visit("c", now_ms=60_000)

    assert house.names == "c"


def test_lower_bound_evicts_two_buckets_for_each_new_one() -> None:
    house = House(6)
    for name in "abcdef":
        house.visit(name)

    house.places.max_buckets = 3
    sizes = []
    for name in "ghijk":
        house.visit(name)
        sizes.append(len(house.places))

    assert sizes == [5, 4, 3, 3, 3]


def test_removed_bucket_is_not_evicted_later() -> None:
    house = House(2)
    tenants = [house.visit(name, owes_until_ms=owes) for name, owes in (("a", 0), ("b", 1_000))]
    for tenant in tenants:
        assert tenant is not None
        house.places.remove(tenant)
    house.places.recheck_parked(now_ms=1_000, most=10)

    for name in "cd":
        house.visit(name, now_ms=1_000)

    assert house.names == "cd"
    assert house.places.evicted == 0
    assert house.gone == tenants


def test_bucket_that_owes_for_ever_is_rechecked_after_an_hour() -> None:
    """Buckets are forgotten after an hour of silence; what lies apart must not keep them alive for longer."""
    house = House(2)
    tenant = house.visit("a", owes_until_ms=float("inf"))
    assert tenant is not None
    house.places.remove(tenant)

    house.places.recheck_parked(now_ms=HOUR_MS - 1, most=10)
    assert tenant.is_parked
    house.places.recheck_parked(now_ms=HOUR_MS, most=10)
    assert not tenant.is_parked
    assert house.places._parked == []


@pytest.mark.parametrize("most", [100, 10_000])
def test_adding_a_bucket_costs_the_same_while_all_others_owe(most: int) -> None:
    """Were those who owe looked at for each newcomer, flooding would cost more the larger the table is."""
    house = House(most)
    for number in range(most - 1):
        house.visit(str(number), owes_until_ms=1_000_000)
    house.looks = 0

    for number in range(1_000):
        assert house.visit(f"new-{number}") is not None

    assert house.looks <= 3_000


def test_few_buckets_are_rechecked_when_all_debts_end_at_once() -> None:
    house = House(10_000)
    for number in range(10_000):
        house.visit(str(number), owes_until_ms=1_000)

    house.looks = 0
    house.visit("new", now_ms=1_000)

    assert house.looks < 20


NAMES = st.sampled_from("abcdefgh")
NAMED = Tags("", "h")


class Houses(RuleBasedStateMachine):
    """Any order of coming, holding, owing, letting go, removing and time."""

    @initialize(most=st.integers(1, 4))
    def begin(self, most: int) -> None:
        self.house = House(most, named={NAMED})
        self.now_ms = 0
        self.clock = count()
        self.let_go_at: dict[Tenant, int] = {}  # in which order they let go, who is here
        self.held: list[Tenant] = []

    @rule(name=NAMES, owes_ms=st.sampled_from([0, 0, 0, 10, 500]), keeps=st.booleans())
    def come(self, name: str, owes_ms: int, keeps: bool) -> None:
        before = {tenant.tags: tenant for tenant in self.house.places}
        may_go = {one for one in before.values() if self._may_go(one)}
        evicted = self.house.places.evicted
        tenant = self.house.come(name, now_ms=self.now_ms)
        gone = set(before.values()) - set(self.house.places)
        if tenant is None:
            assert Tags("", name) not in before
            assert not may_go
            assert not gone
            return
        assert before.get(tenant.tags, tenant) is tenant
        assert len(gone) == self.house.places.evicted - evicted <= 1
        assert gone <= may_go
        for one in gone:
            # Nobody goes who let go later than another that never owed and might have gone.
            others = [self.let_go_at[other] for other in may_go if not other.owes_until_ms]
            assert one.owes_until_ms or self.let_go_at[one] == min(others)
            del self.let_go_at[one]
        self.let_go_at.setdefault(tenant, next(self.clock))
        tenant.holders += 1
        tenant.owes_until_ms = max(tenant.owes_until_ms, self.now_ms + owes_ms if owes_ms else 0)
        self.held.append(tenant)
        if not keeps:
            self._release(len(self.held) - 1)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        self._release(data.draw(st.integers(0, len(self.held) - 1)))

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        tenant = self.house.places.get(Tags("", name))
        if tenant is not None:
            self.house.places.remove(tenant)
            self.let_go_at.pop(tenant)

    @rule(wait_ms=st.sampled_from([1, 10, 100, 60_000]))
    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms

    @rule(most=st.integers(0, 3))
    def wake(self, most: int) -> None:
        self.house.places.recheck_parked(now_ms=self.now_ms, most=most)

    @invariant()
    def there_are_no_more_than_places(self) -> None:
        if hasattr(self, "house"):
            named = self.house.places.get(NAMED) is not None
            assert len(self.house.places) <= self.house.most + named

    @invariant()
    def nothing_is_kept_of_whoever_is_gone_but_for_who_lies_apart(self) -> None:
        if hasattr(self, "house"):
            places = self.house.places
            assert all(tenant.is_listed and not tenant.is_parked for tenant in places._idle)
            assert len({id(tenant) for _, _, tenant in places._parked}) == len(places._parked)

    def _release(self, index: int) -> None:
        tenant = self.held.pop(index)
        self.house.places.release(tenant, now_ms=self.now_ms)
        if tenant in self.let_go_at and not tenant.holders:
            self.let_go_at[tenant] = next(self.clock)

    def _may_go(self, tenant: Tenant) -> bool:
        owes = tenant.owes_until_ms > self.now_ms
        return not (tenant.holders or owes or tenant.tags == NAMED)


TestHouses = Houses.TestCase
TestHouses.settings = settings(
    max_examples=200, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
