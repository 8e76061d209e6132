"""The quota state of one broker: all kinds, and which names are folded together or exempt.

Kafka's quotas hold per broker, so all listeners in front of one upstream address share one of these.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from kafka_quota_proxy.config.linear_regex import compile_linear, match_whole, read_replacement, replaced
from kafka_quota_proxy.config.model import KafkaSettings, Principals, ProxyConfig, Shaping
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.connections import ConnectionQuotas
from kafka_quota_proxy.proxy.quota.entity import bounded
from kafka_quota_proxy.proxy.quota.line import BrokerLines, Line
from kafka_quota_proxy.proxy.quota.open_connections import OpenConnections
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTableChanges, RuleTables

# The windows of a rate that no quota goes by: Kafka's metrics.num.samples and metrics.sample.window.ms.
_METRIC_SAMPLES: Final = 2
_METRIC_WINDOW_S: Final = 30


class PrincipalRules:
    """Folding and exemption of user names."""

    def __init__(self, principals: Principals) -> None:
        patterns = ((compile_linear(fold.match), fold.to) for fold in principals.fold)
        self._folds = tuple((pattern, read_replacement(to, pattern)) for pattern, to in patterns)
        self._exempt = principals.exempt
        self.brokers = principals.brokers

    def charged_user(self, principal: str) -> tuple[str, bool]:
        """Return the user whose bucket ``principal`` charges, and whether it is exempt. The first match folds."""
        for pattern, to in self._folds:
            found = match_whole(pattern, principal)
            if found:
                folded = replaced(found, to)
                break
        else:
            folded = principal
        if principal in self._exempt or folded in self._exempt:
            return principal, True
        return folded, False


class BrokerQuotas:
    """The quotas of users and client-ids at one broker.

    Args:
        config: By what the rules are held.
        shaping: Of the listener, where it has its own.
        rules: Those that hold, shared with other brokers; if left out, they are those of ``config``, and its own.
    """

    def __init__(self, config: ProxyConfig, *, shaping: Shaping | None = None, rules: RuleTables | None = None) -> None:
        self.rules = RuleTables(config) if rules is None else rules
        self._own_shaping = shaping
        self._principals = PrincipalRules(config.principals)
        self.generation = 0  # moves whenever a bucket that somebody keeps may be out of date or gone
        self.lines = BrokerLines()
        self._sharing_ended = 0
        self._managers = {kind: self._manager(config, kind) for kind in BUCKET_KINDS}
        self.limits_requests = self._limits_requests()
        self.request_time_scale = config.request_time_scale
        self.num_partitions = config.kafka.num_partitions  # what a topic has for which no number was asked
        self.arrivals = ConnectionQuotas(config, self.rules.addresses)
        self.connections = OpenConnections(self.rules.connections, self._principals.charged_user)

    @property
    def managers(self) -> Iterable[ClientQuotaManager]:
        """Return the managers of all kinds."""
        return self._managers.values()

    @property
    def produce(self) -> ClientQuotaManager:
        """The manager of ``producer_byte_rate``."""
        return self._managers[QuotaKind.PRODUCE]

    @property
    def fetch(self) -> ClientQuotaManager:
        """The manager of ``consumer_byte_rate``."""
        return self._managers[QuotaKind.FETCH]

    def manager(self, kind: QuotaKind) -> ClientQuotaManager:
        """Return the manager of one kind."""
        return self._managers[kind]

    def limits(self, kind: QuotaKind) -> bool:
        """Whether there is any rule of this kind."""
        return len(self._managers[kind].table) > 0

    def update(
        self, config: ProxyConfig, *, shaping: Shaping | None = None, changed: RuleTableChanges | None = None
    ) -> None:
        """Follow rules that were put in force, and all else in ``config``; what was used stays.

        Args:
            config: By what the rules are held.
            shaping: Of the listener, where it has its own.
            changed: Which rules have changed: the others cost nothing. None: all may have.
        """
        self._own_shaping = shaping
        self._principals = PrincipalRules(config.principals)
        self.renew()
        self.request_time_scale = config.request_time_scale
        self.num_partitions = config.kafka.num_partitions
        self.arrivals.follow_addresses(None if changed is None else changed.addresses)
        self.arrivals.follow(config)
        self.connections.follow(self._principals.charged_user)
        for kind, manager in self._managers.items():
            if changed is None or kind in changed.tables:
                manager.rules_changed(None if changed is None else changed.tables[kind])
            self._put_under(manager, config)
        self.limits_requests = self._limits_requests()

    def _put_under(self, manager: ClientQuotaManager, config: ProxyConfig) -> None:
        shaping, burst_ms = self._arithmetic(config, manager.kind)
        manager.configure(
            shaping=shaping,
            burst_ms=burst_ms,
            max_throttle_time_ms=self._max_throttle_time_ms(config, manager.kind),
            max_buckets=config.max_buckets,
        )

    def follow(self, changed: RuleTableChanges) -> None:
        """Follow single rules that were put in force, from the next request on."""
        for kind, named in changed.tables.items():
            self._managers[kind].rules_changed(named)
        if changed.has_connections:
            self.connections.follow(self._principals.charged_user)
        self.arrivals.follow_addresses(changed.addresses)
        if changed.tables:
            self.renew()
            self.limits_requests = self._limits_requests()

    def absorb(self, other: "BrokerQuotas", *, now_ms: int) -> None:
        """Go on as both: ``other`` has turned out to be the same broker's. What was used there was used here.

        ``other`` is not to be asked any more; what was taken from it still counts, here.
        """
        for kind, manager in self._managers.items():
            manager.absorb(other.manager(kind), now_ms=now_ms)
        self.arrivals.absorb(other.arrivals, now_ms=now_ms)
        self.connections.absorb(other.connections)
        self.renew(beyond=other.generation)

    def renew(self, *, beyond: int = 0) -> None:
        """Have every connection ask again for what it keeps, and those that wait for a turn look again.

        Connections that have come from other quotas ask again, too, where ``beyond`` is the generation of these.
        """
        self.generation = max(self.generation, beyond) + 1
        self.lines.wake_all()

    def line(self, bucket: Bucket) -> Line:
        """Return the line in front of ``bucket``."""
        if bucket.line is None:
            bucket.line = Line(self.lines)
        return bucket.line

    def is_broker(self, principal: str) -> bool:
        """Whether the ``replica_id`` of this principal's fetches is believed."""
        return principal in self._principals.brokers

    def buckets(self, *, principal: str, client_id: str, now_ms: int) -> tuple[Bucket, ...]:
        """Return the buckets that ``principal`` charges, one of each kind, in the order of ``BUCKET_KINDS``."""
        return tuple(
            self.bucket(kind, principal=principal, client_id=client_id, now_ms=now_ms) for kind in self._managers
        )

    def bucket(self, kind: QuotaKind, *, principal: str, client_id: str, now_ms: int) -> Bucket:
        """Return the bucket that such requests of ``principal`` charge.

        Whoever charges it without asking again before ``generation`` moves is to ``hold`` it.
        """
        user, is_exempt = self._principals.charged_user(principal)
        bucket = self._managers[kind].bucket(
            user=bounded(user), client_id=bounded(client_id), now_ms=now_ms, is_exempt=is_exempt
        )
        self._follow_sharing()
        return bucket

    def hold(self, bucket: Bucket) -> None:
        """Keep ``bucket`` from making room for another until ``release``."""
        bucket.holders += 1

    def release(self, bucket: Bucket, *, now_ms: int) -> None:
        """Let go of ``bucket``, as often as it was held."""
        self._managers[bucket.kind].release(bucket, now_ms=now_ms)

    def expire(self, *, now_ms: int) -> None:
        """Forget buckets and addresses that were silent for an hour."""
        for _ in self.expire_slices(now_ms=now_ms):
            pass

    def expire_slices(self, *, now_ms: int) -> Iterator[None]:
        """Do the same a slice at a time, so that others have a turn in between."""
        for manager in self.managers:
            for gone in manager.expire_slices(now_ms=now_ms):
                if gone:
                    self.renew()
                yield
            self._follow_sharing()
        yield from self.arrivals.expire_slices(now_ms=now_ms)

    def _follow_sharing(self) -> None:
        ended = sum(manager.sharing_ended for manager in self._managers.values())
        if ended != self._sharing_ended:
            self._sharing_ended = ended
            self.renew()

    def _limits_requests(self) -> bool:
        """Whether requests are charged beside their bytes."""
        return self.limits(QuotaKind.REQUEST) or self.limits(QuotaKind.REQUEST_RATE)

    def _max_throttle_time_ms(self, config: ProxyConfig, kind: QuotaKind) -> int | None:
        """Return how long a response may say that a wait is; for service time Kafka has a bound of its own, one window.

        Source: ``ClientRequestQuotaManager.throttleTime``.
        """
        most_ms = config.max_throttle_time_ms
        if kind is not QuotaKind.REQUEST:
            return most_ms
        window_ms = config.kafka.quota_window_size_seconds * 1_000
        return window_ms if most_ms is None else min(most_ms, window_ms)

    def _arithmetic(self, config: ProxyConfig, kind: QuotaKind) -> tuple[Shaping, int]:
        """Return the shaping of a kind, and the burst in ms: Kafka itself has a token bucket for mutations."""
        if kind is QuotaKind.MUTATION:
            kafka = config.kafka
            return Shaping.PACED, kafka.controller_quota_window_num * kafka.controller_quota_window_size_seconds * 1_000
        return self._own_shaping or config.shaping, config.burst_ms

    def _windows(self, kafka: KafkaSettings, kind: QuotaKind) -> KafkaSettings:
        """Return the settings with the windows of a rate. Mutations are held to tokens, and their rate is only shown.

        Source: ``ControllerMutationQuotaManager.registerQuotaMetrics``.
        """
        if kind is not QuotaKind.MUTATION:
            return kafka
        return replace(kafka, quota_window_num=_METRIC_SAMPLES, quota_window_size_seconds=_METRIC_WINDOW_S)

    def _manager(self, config: ProxyConfig, kind: QuotaKind) -> ClientQuotaManager:
        shaping, burst_ms = self._arithmetic(config, kind)
        return ClientQuotaManager(
            kind,
            self.rules.tables[kind],
            kafka=self._windows(config.kafka, kind),
            shaping=shaping,
            burst_ms=burst_ms,
            max_throttle_time_ms=self._max_throttle_time_ms(config, kind),
            max_buckets=config.max_buckets,
            is_logged=config.usage_log is not None,
        )
