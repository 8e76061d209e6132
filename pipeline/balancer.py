"""A cluster's limits, and the shares of them that its proxies have: use in, publications out. No I/O, no clock.

``Balancer`` knows the buckets. ``wants`` has what each wants, ``leases`` how shares may move and never be too much.

A bucket has shares from when it is throttled at some proxy, until an even share has been enough for all of them for a
while. All others have none, and cost nothing: the rule for all holds for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.quota_record import QuotaRecord, Rule, Share, encode
from kafka_quota_proxy.pipeline.leases import Leases, even_share
from kafka_quota_proxy.pipeline.limit_division import DemandTracker, ProxyDemand, ProxyUsage, divide_limit
from kafka_quota_proxy.proxy.quota.entity import RuleTable

_KINDS: Final = {kind.label: kind for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}
_DEFAULT_USER: Final = 6
# Of an even share. What would change less stays as it is: use is never quite even, and each change is a record.
_WORTH_IT: Final = 0.05
# The same while everybody has what he wants, and only what nobody wants would be divided in another way; which is done
# when it has been so for some time, for who uses his limit in bursts is to have it for the next one.
_WORTH_IT_UNASKED: Final = 0.25
_BETWEEN_BURSTS_MS: Final = 15_000
# A log in which nobody used anything looks like one that does not come. After so long it is taken for the first.
_SILENCE_MS: Final = 15_000


class Bucket(NamedTuple):
    """What one limit is for; a name is ``""`` where the rule does not tell them apart."""

    kind: str
    user: str
    client_id: str


class Use(NamedTuple):
    """What one bucket used at one proxy."""

    proxy: str
    bucket: Bucket
    used: ProxyUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """By what shares are given.

    Attributes:
        lease_ms: how long a share holds after a publication was heard of.
        delay_ms: how long it takes at the most until that is so; ``leases`` has more.
        floor: what a proxy has of a limit that it does not use, as a part of an even share.
        even_after_ms: how long an even share has to be enough for all, before there are no others.
        most_buckets: how many may have shares at a time.
    """

    lease_ms: int
    delay_ms: int
    floor: float
    even_after_ms: int = 60_000
    most_buckets: int = 10_000


class Moved(NamedTuple):
    """The shares of a bucket that were changed. ``shares`` is empty when there are none any more."""

    bucket: Bucket
    shares: Mapping[str, int]


class Publication(NamedTuple):
    """What is to be written, and which buckets it is about."""

    records: Sequence[QuotaRecord]
    moved: Sequence[Moved]


@dataclass(slots=True, kw_only=True)
class _Known:
    """What is known of a bucket."""

    limit: int
    demands: dict[str, DemandTracker] = field(default_factory=dict)
    leases: Leases | None = None  # None: it has no shares
    goal: Mapping[str, int] = field(default_factory=dict)
    asked_ms: int = 0  # when somebody last wanted more than he had
    fits_since_ms: int | None = None


class Balancer:
    """The shares of all buckets.

    Args:
        limits: a configuration whose quotas hold cluster-wide.
        proxies: the names of all proxies, each once; each stands before one broker.
        terms: as they say.
    """

    def __init__(self, limits: ProxyConfig, proxies: Sequence[str], terms: Terms) -> None:
        self._limits = limits
        self._proxies = tuple(proxies)
        self._terms = terms
        self._tables = {label: RuleTable(kind, limits.quotas) for label, kind in _KINDS.items()}
        self._divides_users = {label: _divides_users(limits, kind) for label, kind in _KINDS.items()}
        self._known: dict[Bucket, _Known] = {}
        self._written: dict[tuple[str, str, str], Mapping[str, float]] = {}  # by proxy, user and client-id
        self._heard_ms = 0
        self._with_shares = 0
        self.turned_away = 0  # buckets that got no shares the last time, for too many others have

    def rules(self) -> list[Rule]:
        """Return the rules for all proxies: of each limit an even share."""
        every = []
        for rule in self._limits.quotas:
            even = {
                kind.key: float(even_share(limit, len(self._proxies)))
                for kind in _KINDS.values()
                if (limit := kind.limit_of(rule)) is not None
            }
            if even:
                every.append(Rule(user=rule.user, client_id=rule.client_id, limits=even))
        return every

    def take(self, uses: Iterable[Use], *, now_ms: int) -> None:
        """Take in what the log has of late, all of it; what it does not have was not used.

        Args:
            uses: at proxies that are among those of this balancer.
            now_ms: when it came.
        """
        self._heard_ms = now_ms
        for proxy, bucket, used in uses:
            known = self._known.get(bucket)
            if known is None:
                limit = self._limit(bucket)
                if limit is None:
                    continue
                known = self._known[bucket] = _Known(limit=limit)
            leases = known.leases
            share = leases.shares[proxy] if leases else even_share(known.limit, len(self._proxies))
            known.demands.setdefault(proxy, DemandTracker()).take(used, share=share, now_ms=now_ms)

    def publish(self, *, now_ms: int) -> Publication:
        """Return what is to be written now. The publication before must be known to be in the topic."""
        self.turned_away = 0
        # While the log is late nothing that it has said before gets old.
        known_until_ms = self._heard_ms if now_ms - self._heard_ms < _SILENCE_MS else now_ms
        moved = []
        for bucket, known in list(self._known.items()):
            wants = self._wants(known, known_until_ms)
            if known.leases is None:
                self._begin(bucket, known, wants)
            if known.leases is not None and self._move(known, known.leases, wants, now_ms):
                moved.append(Moved(bucket, dict(known.leases.shares) if known.leases else {}))
        return Publication(self._records(moved), moved)

    def _limit(self, bucket: Bucket) -> int | None:
        """Return the limit of a bucket that can have shares, None of others."""
        found = self._tables[bucket.kind].resolve(user=bucket.user, client_id=bucket.client_id)
        if (
            found.limit is None
            or found.level is None
            or bucket.user in self._limits.principals.exempt
            # A proxy whose own file has finer rules knows the bucket by another name, and its rule is not ours.
            or found.tags != (bucket.user, bucket.client_id)
            # A rule for the user by name, which the share is, would come before those of default users and client-ids.
            or (found.level.number == _DEFAULT_USER and self._divides_users[bucket.kind])
        ):
            return None
        try:
            encode(self._share(self._proxies[0], bucket.user, bucket.client_id, {}))
        except ValueError:
            return None  # a name that the topic cannot have
        return int(found.limit)

    def _wants(self, known: _Known, now_ms: int) -> dict[str, ProxyDemand]:
        nothing = ProxyDemand()
        return {
            proxy: demand.demand(limit=known.limit, now_ms=now_ms) if (demand := known.demands.get(proxy)) else nothing
            for proxy in self._proxies
        }

    def _begin(self, bucket: Bucket, known: _Known, wants: Mapping[str, ProxyDemand]) -> None:
        if not any(want.is_throttled for want in wants.values()):
            if not any(want.rate for want in wants.values()):
                del self._known[bucket]
            return
        if self._with_shares >= self._terms.most_buckets:
            self.turned_away += 1
            return
        self._with_shares += 1
        hold_ms = self._terms.lease_ms + self._terms.delay_ms
        known.leases = Leases(known.limit, self._proxies, hold_ms=hold_ms)
        known.goal = known.leases.shares

    def _move(self, known: _Known, leases: Leases, wants: Mapping[str, ProxyDemand], now_ms: int) -> bool:
        """Return whether shares have changed; ``known.leases`` is None when there are none any more."""
        if any(want.is_throttled or want.rate > leases.even for want in wants.values()):
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
        goal = divide_limit(known.limit, wants, floor=self._terms.floor)
        is_asked = any(want.is_throttled or want.rate > known.goal[proxy] for proxy, want in wants.items())
        if is_asked:
            known.asked_ms = now_ms
        worth_it = (_WORTH_IT if is_asked else _WORTH_IT_UNASKED) * leases.even
        if (is_asked or now_ms - known.asked_ms >= _BETWEEN_BURSTS_MS) and any(
            abs(goal[proxy] - was) > worth_it for proxy, was in known.goal.items()
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
    """Whether some rule is for default users and certain client-ids, or each."""
    return any(
        rule.user is DEFAULT and rule.client_id is not None and kind.limit_of(rule) is not None
        for rule in limits.quotas
    )
