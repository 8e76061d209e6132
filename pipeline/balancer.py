"""Divides a cluster's limits over its proxies: takes what was used at each proxy, and returns shares to publish.

This module does no I/O and reads no clock. ``Balancer`` keeps the state of the buckets, ``demand_estimator`` computes
their shares, and ``leases`` changes shares so that their sum never exceeds a limit.

By default, a common rule gives each proxy an even share of a limit. A bucket receives shares of its own when it is
throttled at a proxy. It keeps them until even shares have been enough at all proxies for a while.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig
from kafka_quota_proxy.config.quota_kinds import BYTE_RATES, QuotaKind
from kafka_quota_proxy.config.quota_record import QuotaRecord, Rule, Share, encode
from kafka_quota_proxy.pipeline.demand_estimator import DemandEstimator, ProxyDemand, ProxyUsage, divide_limit
from kafka_quota_proxy.pipeline.leases import Leases, even_share
from kafka_quota_proxy.proxy.quota.entity import RuleTable

_KINDS: Final = {kind.label: kind for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}
_DEFAULT_USER: Final = 6
# The smallest change of a share that is published, as a part of an even share. Use always varies a little, and each
# change costs a record.
_LEAST_CHANGE: Final = 0.05
# The smallest change while all demand is met and only the rest of a limit would be divided differently. Such a change
# waits for some time, so that a client with bursts keeps its share for the next burst.
_LEAST_CHANGE_OF_REST: Final = 0.25
_BETWEEN_BURSTS_MS: Final = 15_000
# A log without new use may only be late. After this time without records, the buckets count as unused.
_SILENCE_MS: Final = 15_000


class Bucket(NamedTuple):
    """Identifies the bucket of a limit by its kind and entity.

    A name is ``""`` if the rule of the limit does not distinguish users (or client-ids).
    """

    kind: str
    user: str
    client_id: str


class Use(NamedTuple):
    """Holds how much of one quota was used at one proxy, summed over a batch of usage records."""

    proxy: str
    bucket: Bucket
    used: ProxyUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The settings that determine how large shares are and how long they last."""

    lease_ms: int  # how long a share applies after a proxy has received a publication
    delay_ms: int  # the longest time until a publication reaches a proxy; see ``leases``
    floor: float  # the share of a proxy without use, as a part of an even share
    even_after_ms: int = 60_000  # how long an even share has to be enough at all proxies before the shares end
    most_buckets: int = 10_000  # the highest number of buckets with shares


class Moved(NamedTuple):
    """The new shares of a bucket, keyed by proxy. ``shares`` is empty if the bucket has no shares any more."""

    bucket: Bucket
    shares: Mapping[str, int]


class Publication(NamedTuple):
    """The changed shares of limits, and the records for the quota topic from which the proxies read these shares."""

    records: Sequence[QuotaRecord]
    moved: Sequence[Moved]


@dataclass(slots=True, kw_only=True)
class _BucketState:
    """What a ``Balancer`` knows of one quota: the limit, the demand at each proxy, and the share of each proxy."""

    limit: int
    demands: dict[str, DemandEstimator] = field(default_factory=dict)
    leases: Leases | None = None  # None while the common rule applies
    goal: Mapping[str, int] = field(default_factory=dict)
    lacking_ms: int = 0  # when a proxy last needed more than its goal
    fits_since_ms: int | None = None


class Balancer:
    """Divides the limits of one cluster's quotas over its proxies. Each proxy must have exactly one broker."""

    def __init__(self, limits: ProxyConfig, proxies: Sequence[str], terms: Terms) -> None:
        self._limits = limits
        self._proxies = tuple(proxies)
        self._terms = terms
        self._tables = {label: RuleTable(kind, limits.quotas) for label, kind in _KINDS.items()}
        self._divides_users = {label: _divides_users(limits, kind) for label, kind in _KINDS.items()}
        self._known: dict[Bucket, _BucketState] = {}
        self._written: dict[tuple[str, str, str], Mapping[str, float]] = {}  # by proxy, user and client-id
        self._last_use_ms = 0
        self._with_shares = 0
        self.turned_away = 0  # the buckets that got no shares at the last publication, since too many others have some

    def rules(self) -> list[Rule]:
        """Return the common rules, which give each proxy an even share of each limit."""
        proxies = len(self._proxies)
        return [
            Rule(user=rule.user, client_id=rule.client_id, limits=even)
            for rule in self._limits.quotas
            if (even := {key: float(even_share(rule.limits[key], proxies)) for key in BYTE_RATES if key in rule.limits})
        ]

    def take(self, uses: Iterable[Use], *, now_ms: int) -> None:
        """Add the use since the last call. A bucket that is missing from ``uses`` was not used."""
        self._last_use_ms = now_ms
        for proxy, bucket, used in uses:
            known = self._known.get(bucket)
            if known is None:
                limit = self._limit(bucket)
                if limit is None:
                    continue
                known = self._known[bucket] = _BucketState(limit=limit)
            leases = known.leases
            share = leases.shares[proxy] if leases else even_share(known.limit, len(self._proxies))
            known.demands.setdefault(proxy, DemandEstimator()).take(used, share=share, now_ms=now_ms)

    def publish(self, *, now_ms: int) -> Publication:
        """Adjust each proxy's shares of the limits to the demand, and return the records that publish the changes.

        May be called only after the quota topic has acknowledged the records of the previous call.
        """
        self.turned_away = 0
        # While the log is late, its earlier records do not expire.
        known_until_ms = self._last_use_ms if now_ms - self._last_use_ms < _SILENCE_MS else now_ms
        moved = []
        for bucket, known in list(self._known.items()):
            demands = self._demands(known, known_until_ms)
            if known.leases is None:
                self._begin(bucket, known, demands)
            if known.leases is not None and self._move(known, known.leases, demands, now_ms):
                moved.append(Moved(bucket, dict(known.leases.shares) if known.leases else {}))
        return Publication(self._records(moved), moved)

    def _limit(self, bucket: Bucket) -> int | None:
        """Return the limit of a bucket, or None if there is none, or if it cannot be divided into shares."""
        found = self._tables[bucket.kind].resolve(user=bucket.user, client_id=bucket.client_id)
        if (
            found.limit is None
            or found.level is None
            or bucket.user in self._limits.principals.exempt
            # A proxy with finer rules in its own file has another bucket, which this limit does not cover.
            or found.tags != (bucket.user, bucket.client_id)
            # A share is a rule for the user by name, which would override rules for default users and client-ids.
            or (found.level.number == _DEFAULT_USER and self._divides_users[bucket.kind])
        ):
            return None
        try:
            encode(self._share(self._proxies[0], bucket.user, bucket.client_id, {}))
        except ValueError:
            return None  # the topic cannot hold this name
        return int(found.limit)

    def _demands(self, known: _BucketState, now_ms: int) -> dict[str, ProxyDemand]:
        nothing = DemandEstimator()
        return {
            proxy: known.demands.get(proxy, nothing).demand(limit=known.limit, now_ms=now_ms) for proxy in self._proxies
        }

    def _begin(self, bucket: Bucket, known: _BucketState, demands: Mapping[str, ProxyDemand]) -> None:
        if not any(demand.is_throttled for demand in demands.values()):
            if not any(demand.rate for demand in demands.values()):
                del self._known[bucket]
            return
        if self._with_shares >= self._terms.most_buckets:
            self.turned_away += 1
            return
        self._with_shares += 1
        hold_ms = self._terms.lease_ms + self._terms.delay_ms
        known.leases = Leases(known.limit, self._proxies, hold_ms=hold_ms)
        known.goal = known.leases.shares

    def _move(self, known: _BucketState, leases: Leases, demands: Mapping[str, ProxyDemand], now_ms: int) -> bool:
        """Adjust each proxy's share of a bucket's limit to the demand, or end shares that are no longer needed.

        Return whether the shares changed.
        """
        if any(demand.is_throttled or demand.rate > leases.even for demand in demands.values()):
            known.fits_since_ms = None
        elif known.fits_since_ms is None:
            known.fits_since_ms = now_ms
        elif now_ms - known.fits_since_ms >= self._terms.even_after_ms:
            known.goal = dict.fromkeys(self._proxies, leases.even)
            if leases.is_even(now_ms=now_ms):
                known.leases, known.fits_since_ms = None, None
                self._with_shares -= 1
                return True
            return leases.move(known.goal, now_ms=now_ms)
        goal = divide_limit(known.limit, demands, floor=self._terms.floor)
        is_lacking = any(demand.is_throttled or demand.rate > known.goal[proxy] for proxy, demand in demands.items())
        if is_lacking:
            known.lacking_ms = now_ms
        least_change = (_LEAST_CHANGE if is_lacking else _LEAST_CHANGE_OF_REST) * leases.even
        if (is_lacking or now_ms - known.lacking_ms >= _BETWEEN_BURSTS_MS) and any(
            abs(goal[proxy] - was) > least_change for proxy, was in known.goal.items()
        ):
            known.goal = goal
        return leases.move(known.goal, now_ms=now_ms)

    def _records(self, moved: Iterable[Moved]) -> list[Share]:
        records = []
        for user, client_id in dict.fromkeys((bucket.user, bucket.client_id) for bucket, _ in moved):
            for proxy in self._proxies:
                limits = self._shares_of(proxy, user, client_id)
                if limits != self._written.get((proxy, user, client_id), {}):
                    records.append(self._share(proxy, user, client_id, limits))
                    self._written[proxy, user, client_id] = limits
                if not limits:
                    self._written.pop((proxy, user, client_id), None)
        return records

    def _shares_of(self, proxy: str, user: str, client_id: str) -> dict[str, float]:
        return {
            kind.key: float(known.leases.shares[proxy])
            for label, kind in _KINDS.items()
            if (known := self._known.get(Bucket(label, user, client_id))) and known.leases
        }

    @staticmethod
    def _share(proxy: str, user: str, client_id: str, limits: Mapping[str, float]) -> Share:
        return Share(proxy=proxy, user=user or None, client_id=client_id or None, limits=limits)


def _divides_users(limits: ProxyConfig, kind: QuotaKind) -> bool:
    """Return whether any rule with a limit of this kind is for the default user together with a client-id."""
    return any(
        rule.user is DEFAULT and rule.client_id is not None and kind.limit_of(rule) is not None
        for rule in limits.quotas
    )
