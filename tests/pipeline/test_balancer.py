"""The balancer with simulated proxies, which use as much as their shares allow."""

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import pytest

from kafka_quota_proxy.config.model import DEFAULT, MAX_NAME_BYTES, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.config.quota_record import Rule, Share
from kafka_quota_proxy.pipeline.balancer import Balancer, Bucket, Publication, Terms, Use
from kafka_quota_proxy.pipeline.demand_estimator import ProxyUsage

LIMIT: Final = 3_000_000
EVEN: Final = LIMIT // 3
PROXIES: Final = ("p1", "p2", "p3")
TERMS: Final = Terms(lease_ms=8_000, delay_ms=1_000, floor=0.03)
ALICE: Final = Bucket("produce", "alice", "")
RULES: Final = (QuotaRule(user="alice", producer_byte_rate=float(LIMIT)),)
LATE_MS: Final = 2_000  # the use of a second is known this long after the second began

Appetite = Callable[[int, str], float]


def balancer(*rules: QuotaRule, terms: Terms = TERMS, exempt: frozenset[str] = frozenset()) -> Balancer:
    limits = ProxyConfig(listeners=(), quotas=rules or RULES, principals=Principals(exempt=exempt))
    return Balancer(limits, PROXIES, terms)


def throttled(proxy: str, bucket: Bucket = ALICE, *, amount: int = EVEN) -> Use:
    return Use(proxy, bucket, ProxyUsage(amount, 1_000, 1_000, 3, 30))


class Fleet:
    """Simulated proxies, in steps of a second. They apply a publication at once.

    ``wanted`` returns the bytes that a proxy's clients want to send in a given second. ``cut_off`` returns the proxies
    that receive no publication in that second.
    """

    def __init__(self, wanted: Appetite, cut_off: Callable[[int], str] = lambda _: "") -> None:
        self.balancer = balancer()
        self.used: list[int] = []  # the bytes that all proxies used in each second
        self.publications: list[Publication] = []
        self._wanted, self._cut_off = wanted, cut_off
        self.shares = dict.fromkeys(PROXIES, EVEN)
        self._heard_s = dict.fromkeys(PROXIES, -100)
        self._log: deque[tuple[int, list[Use]]] = deque()

    def run(self, seconds: int) -> "Fleet":
        for second in range(len(self.used), len(self.used) + seconds):
            self._publish(second)
            self._use(second)
        return self

    def _publish(self, second: int) -> None:
        if self._log and self._log[0][0] <= second * 1_000:
            self.balancer.take(self._log.popleft()[1], now_ms=second * 1_000)
        published = self.balancer.publish(now_ms=second * 1_000)
        self.publications.append(published)
        for record in published.records:
            assert isinstance(record, Share)
            if record.proxy not in self._cut_off(second):
                self.shares[record.proxy] = int(record.limits.get("producer_byte_rate", EVEN))
        self._heard_s |= {proxy: second for proxy in PROXIES if proxy not in self._cut_off(second)}

    def _use(self, second: int) -> None:
        uses = []
        for proxy in PROXIES:
            wanted = int(self._wanted(second, proxy))
            has_lease = (second - self._heard_s[proxy]) * 1_000 < TERMS.lease_ms
            allowed = self.shares[proxy] if has_lease else EVEN
            amount = min(wanted, allowed)
            if amount:
                uses.append(
                    Use(proxy, ALICE, ProxyUsage(amount, 1_000, 1_000, *((3, 30) if wanted > allowed else (0, 0))))
                )
        self._log.append((second * 1_000 + LATE_MS, uses))
        self.used.append(sum(use.used.amount for use in uses))

    def changes(self, seconds: slice) -> int:
        return sum(bool(published.records) for published in self.publications[seconds])


def noisy(appetite: Mapping[str, float], noise: float = 0.05) -> Appetite:
    chance = random.Random(1)  # noqa: S311
    return lambda _, proxy: appetite[proxy] * LIMIT * chance.uniform(1 - noise, 1 + noise)


def moving(second: int, proxy: str) -> float:
    """Put the whole load on one proxy, and move it to the next proxy every minute."""
    return 10 * LIMIT if PROXIES[second // 60 % 3] == proxy else 0


def test_a_moved_load_has_its_limit_after_20_s_and_never_more() -> None:
    fleet = Fleet(moving).run(360)

    for move in range(6):
        assert min(fleet.used[move * 60 + 20 : move * 60 + 60]) >= 0.95 * LIMIT
    assert max(fleet.used) <= LIMIT


@pytest.mark.parametrize("left", [0.1, 0.3])
def test_a_partly_moved_load_has_its_limit_as_soon(left: float) -> None:
    def wanted(second: int, proxy: str) -> float:
        return moving(second, proxy) or left * LIMIT

    fleet = Fleet(wanted).run(240)

    for move in range(4):
        assert min(fleet.used[move * 60 + 20 : move * 60 + 60]) >= 0.95 * LIMIT
    assert max(fleet.used) <= LIMIT


def test_a_second_load_shares_the_limit_after_20_s() -> None:
    def wanted(second: int, proxy: str) -> float:
        return 10 * LIMIT if proxy == "p1" or (proxy == "p2" and second >= 60) else 0

    fleet = Fleet(wanted).run(120)

    assert min(fleet.used[20:60]) >= 0.95 * LIMIT
    assert min(fleet.used[80:]) >= 0.95 * LIMIT
    assert fleet.shares["p1"] == fleet.shares["p2"]


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_disconnected_proxy_adds_at_most_an_even_share(proxy: str) -> None:
    for since in range(50, 130, 5):
        fleet = Fleet(
            lambda _, proxy: 10 * LIMIT if proxy != "p3" else 0.5 * LIMIT,
            cut_off=lambda second, since=since: proxy if since <= second < since + 40 else "",  # type: ignore[misc]
        ).run(200)

        assert max(fleet.used[:since]) <= LIMIT
        assert max(fleet.used) <= LIMIT + EVEN
        assert max(fleet.used[since + 60 :]) <= LIMIT


@pytest.mark.parametrize(
    "appetite",
    [
        {"p1": 2.0, "p2": 0.0, "p3": 0.0},
        {"p1": 2.0, "p2": 2.0, "p3": 0.0},
        {"p1": 2.0, "p2": 2.0, "p3": 2.0},
        {"p1": 2.0, "p2": 0.1, "p3": 0.1},
        {"p1": 2.0, "p2": 0.3, "p3": 0.0},
        {"p1": 0.6, "p2": 0.2, "p3": 0.1},
        {"p1": 0.9, "p2": 0.4, "p3": 0.4},
        {"p1": 0.5, "p2": 0.5, "p3": 0.5},
        {"p1": 0.34, "p2": 0.34, "p3": 2.0},
        {"p1": 0.48, "p2": 0.48, "p3": 0.0},
    ],
)
def test_noisy_constant_demand_leads_to_constant_shares(appetite: dict[str, float]) -> None:
    fleet = Fleet(noisy(appetite)).run(300)

    late = fleet.used[60:]
    assert sum(late) / len(late) >= 0.93 * min(LIMIT, sum(appetite.values()) * LIMIT)
    assert max(fleet.used) <= LIMIT
    assert fleet.changes(slice(60, 300)) <= 24


def test_a_client_with_bursts_keeps_its_share_between_them() -> None:
    def wanted(second: int, proxy: str) -> float:
        return 10 * LIMIT if proxy == "p1" and second % 20 < 8 else 0

    fleet = Fleet(wanted).run(200)

    assert all(min(fleet.used[burst : burst + 8]) >= 0.95 * LIMIT for burst in range(60, 200, 20))


def test_constant_demand_keeps_shares() -> None:
    fleet = Fleet(noisy({"p1": 2.0, "p2": 0.6, "p3": 0.1}, noise=0)).run(300)

    assert fleet.changes(slice(0, 60)) > 0
    assert fleet.changes(slice(60, 300)) == 0


def test_shares_match_constant_demand_after_a_lease_and_a_publication() -> None:
    one = balancer()
    for second in range(10):
        one.take([throttled("p1", amount=10 * LIMIT)], now_ms=second * 1_000)
        last = one.publish(now_ms=second * 1_000)

    assert last.moved[0] == (ALICE, {"p1": 2_940_000, "p2": 30_000, "p3": 30_000})
    assert last.records == [Share(proxy="p1", user="alice", limits={"producer_byte_rate": 2_940_000.0})]


def test_a_bucket_that_fits_an_even_share_returns_to_it() -> None:
    def wanted(second: int, proxy: str) -> float:
        return 10 * LIMIT if second < 30 and proxy == "p1" else 0

    fleet = Fleet(wanted).run(150)

    records = [record for published in fleet.publications for record in published.records]
    assert {record.proxy: dict(record.limits) for record in records if isinstance(record, Share)} == {
        proxy: {} for proxy in PROXIES
    }
    last = [published for published in fleet.publications if published.moved][-1]
    assert last.moved == [(ALICE, {})]
    assert fleet.changes(slice(110, 150)) == 0
    assert fleet.balancer._known == {}
    assert fleet.balancer._written == {}


def test_a_bucket_without_throttling_gets_no_shares() -> None:
    one = balancer()

    one.take([Use("p1", ALICE, ProxyUsage(LIMIT, 1_000, 1_000, 0, 0))], now_ms=0)

    assert one.publish(now_ms=1_000) == ([], [])
    assert one.publish(now_ms=20_000) == ([], [])
    assert one._known == {}


def test_shares_stay_while_the_log_is_late_and_end_when_it_is_silent() -> None:
    one = balancer()
    for second in range(11):
        one.take([throttled("p1", amount=LIMIT)], now_ms=second * 1_000)
        one.publish(now_ms=second * 1_000)

    assert one.publish(now_ms=24_999).moved == []
    one.publish(now_ms=25_000)
    assert one.publish(now_ms=40_000).moved == [(ALICE, {"p1": EVEN, "p2": 30_000, "p3": 30_000})]


def test_common_rules_are_even_shares_of_byte_rates() -> None:
    one = balancer(
        QuotaRule(user=DEFAULT, producer_byte_rate=3_001.0, consumer_byte_rate=2.0, request_percentage=50.0),
        QuotaRule(client_id="etl", request_percentage=50.0),
    )

    # A limit below the number of proxies still limits each proxy.
    assert one.rules() == [Rule(user=DEFAULT, limits={"producer_byte_rate": 1_000.0, "consumer_byte_rate": 1.0})]


def test_both_kinds_of_one_entity_are_one_record() -> None:
    one = balancer(replace(RULES[0], limits={**RULES[0].limits, "consumer_byte_rate": 6_000_000.0}))
    fetch = ALICE._replace(kind="fetch")
    uses = [throttled("p1"), throttled("p1", fetch, amount=2 * EVEN), throttled("p2", fetch, amount=2 * EVEN)]

    one.take(uses, now_ms=0)
    first = one.publish(now_ms=0)

    both = {"producer_byte_rate": 30_000.0, "consumer_byte_rate": 60_000.0}
    assert Share(proxy="p3", user="alice", limits=both) in first.records
    assert [record.proxy for record in first.records if isinstance(record, Share)] == list(PROXIES)


def test_a_bucket_under_a_default_has_a_share_by_its_own_names() -> None:
    one = balancer(QuotaRule(user=DEFAULT, client_id=DEFAULT, producer_byte_rate=float(LIMIT)))

    one.take([throttled("p1", Bucket("produce", "bob", "etl"))], now_ms=0)

    assert {
        (record.user, record.client_id) for record in one.publish(now_ms=0).records if isinstance(record, Share)
    } == {("bob", "etl")}


@pytest.mark.parametrize(
    ("rules", "bucket"),
    [
        pytest.param(RULES, Bucket("fetch", "alice", ""), id="without a limit of this kind"),
        pytest.param(RULES, Bucket("produce", "bob", ""), id="without a limit"),
        pytest.param(RULES, Bucket("produce", "alice", "etl"), id="that is another one by these rules"),
        pytest.param(
            (QuotaRule(user=DEFAULT, producer_byte_rate=float(LIMIT)),),
            Bucket("produce", "admin", ""),
            id="of an exempt user",
        ),
        pytest.param(
            (
                QuotaRule(user=DEFAULT, producer_byte_rate=float(LIMIT)),
                QuotaRule(user=DEFAULT, client_id="etl", producer_byte_rate=1_000.0),
            ),
            Bucket("produce", "bob", ""),
            id="whose rule by name would come before others",
        ),
        pytest.param(
            (QuotaRule(user=DEFAULT, producer_byte_rate=float(LIMIT)),),
            Bucket("produce", "x" * (MAX_NAME_BYTES + 1), ""),
            id="whose name the topic cannot have",
        ),
    ],
)
def test_a_bucket_gets_no_shares(rules: tuple[QuotaRule, ...], bucket: Bucket) -> None:
    one = balancer(*rules, exempt=frozenset({"admin"}))

    one.take([throttled("p1", bucket)], now_ms=0)

    assert one.publish(now_ms=0) == ([], [])
    assert one._known == {}


def test_the_number_of_buckets_with_shares_is_bounded() -> None:
    one = balancer(QuotaRule(user=DEFAULT, producer_byte_rate=float(LIMIT)), terms=replace(TERMS, most_buckets=2))
    names = ["a", "b", "c", "d"]

    one.take([throttled("p1", Bucket("produce", name, "")) for name in names], now_ms=0)

    assert [bucket.user for bucket, _ in one.publish(now_ms=0).moved] == ["a", "b"]
    assert one.turned_away == 2
