"""Holds the quotas that apply at one broker, and finds the buckets that a connection's requests are charged to.

Kafka's quotas apply to each broker separately. All listeners in front of one broker share one ``BrokerQuotas``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from kafka_quota_proxy.config.linear_regex import compile_linear, match_whole, read_replacement, replaced
from kafka_quota_proxy.config.model import KafkaSettings, ProxyConfig, Shaping
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.quota.answer_time import AnswerTime
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.connections import ConnectionQuotas
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.line import BrokerLines, Line
from kafka_quota_proxy.proxy.quota.open_connections import OpenConnections
from kafka_quota_proxy.proxy.quota.rule_tables import NO_CHANGES, RuleTableChanges, RuleTables, bounded

# The windows of rates that decide nothing and are only metrics (metrics.num.samples, metrics.sample.window.ms).
_METRIC_SAMPLES: Final = 2
_METRIC_WINDOW_S: Final = 30
_BYTES: Final = (QuotaKind.PRODUCE, QuotaKind.FETCH)
_REQUESTS: Final = (QuotaKind.REQUEST, QuotaKind.REQUEST_RATE)
# Bounds the clients that are kept until the log takes them. A flood of client names must not fill the memory.
MAX_NEWLY_UNLIMITED: Final = 10_000


class PrincipalRules:
    """Determines which user each principal counts as.

    Several principals may count as one user, and share its quotas.
    """

    def __init__(self, principals: Principals) -> None:
        patterns = ((compile_linear(fold.match), fold.to) for fold in principals.fold)
        self._folds = tuple((pattern, read_replacement(to, pattern)) for pattern, to in patterns)
        self._exempt = principals.exempt
        self.brokers = principals.brokers

    def charged_user(self, principal: str) -> tuple[str, bool]:
        """Return the user to which ``principal`` is mapped, and whether this user is exempt from quotas.

        If it is exempt, the returned user is ``principal`` itself.
        """
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
        config: The settings.
        shaping: How limits apply (to sampled windows or a token bucket), or None for the setting of ``config``.
        rules: The rules, which other brokers may share. By default these are the rules of ``config``.

    Attributes:
        generation: A counter that increases whenever connections must look up their buckets again.
        lines: All the lines in which requests wait for their buckets.
        limits_requests: Whether any rule limits the thread time or the number of requests.
        request_time_scale: The factor for estimates of thread time (see ``request_time.charged_ns``).
        num_partitions: How many partitions a new topic has if its request asks for the broker's default.
        arrivals: The limits on how fast connections are created.
        connections: The limits on how many connections are open.
        newly_unlimited: The clients whose produced or fetched bytes turned out to be unlimited since the log last took
            them, and one kind of bytes for which this is so. Exempt clients are left out. None without ``testing``.
    """

    def __init__(self, config: ProxyConfig, *, shaping: Shaping | None = None, rules: RuleTables | None = None) -> None:
        self.rules = RuleTables(config) if rules is None else rules
        self._own_shaping = shaping
        self._principals = PrincipalRules(config.principals)
        self.generation = 0
        self.lines = BrokerLines()
        self._sharing_ended = 0
        self._managers = {kind: self._manager(config, kind) for kind in BUCKET_KINDS}
        self.limits_requests = self._limits_requests()
        self.request_time_scale = config.request_time_scale
        self.num_partitions = config.kafka.num_partitions
        self.arrivals = ConnectionQuotas(config, self.rules.addresses)
        self.connections = OpenConnections(self.rules.connections, self._principals.charged_user)
        self.newly_unlimited: dict[Tags, QuotaKind] | None = {} if config.testing else None
        self.answer_time = AnswerTime()

    @property
    def managers(self) -> Iterable[ClientQuotaManager]:
        """The managers of this broker's buckets, one for each kind of quota, such as ``producer_byte_rate``."""
        return self._managers.values()

    @property
    def produce(self) -> ClientQuotaManager:
        """The manager of the buckets that limit produced bytes at this broker (``producer_byte_rate``)."""
        return self._managers[QuotaKind.PRODUCE]

    @property
    def fetch(self) -> ClientQuotaManager:
        """The manager of the buckets that limit fetched bytes at this broker (``consumer_byte_rate``)."""
        return self._managers[QuotaKind.FETCH]

    def manager(self, kind: QuotaKind) -> ClientQuotaManager:
        """Return the manager of this broker's buckets for one kind of quota, such as ``producer_byte_rate``."""
        return self._managers[kind]

    def limits(self, kind: QuotaKind) -> bool:
        """Return whether any rule sets a limit for this kind of quota."""
        return len(self._managers[kind].table) > 0

    def update(
        self, config: ProxyConfig, *, shaping: Shaping | None = None, changed: RuleTableChanges = NO_CHANGES
    ) -> None:
        """Apply new settings and changed rules. The recorded usage is kept.

        ``shaping`` has the same meaning as in the constructor.
        """
        self._own_shaping = shaping
        self._principals = PrincipalRules(config.principals)
        self.rules_changed(changed)
        self.renew()
        self.request_time_scale = config.request_time_scale
        self.num_partitions = config.kafka.num_partitions
        self.arrivals.configure(config)
        self.connections.rules_changed(self._principals.charged_user)
        for manager in self.managers:
            self._configure(manager, config)

    def _configure(self, manager: ClientQuotaManager, config: ProxyConfig) -> None:
        shaping, burst_ms = self._arithmetic(config, manager.kind)
        manager.configure(
            shaping=shaping,
            burst_ms=burst_ms,
            max_throttle_time_ms=self._max_throttle_time_ms(config, manager.kind),
            max_buckets=config.max_buckets,
        )

    def rules_changed(self, changed: RuleTableChanges) -> None:
        """Apply rules that have changed in ``rules``, from the next request on."""
        for kind, named in changed.tables.items():
            self._managers[kind].rules_changed(named)
        if changed.has_connections:
            self.connections.rules_changed(self._principals.charged_user)
        if changed.addresses:
            self.arrivals.rules_changed(changed.addresses)
        if changed.tables:
            self.renew()
        if not changed.tables.keys().isdisjoint(_REQUESTS):
            self.limits_requests = self._limits_requests()

    def renew(self) -> None:
        """Make every connection look up again which buckets it charges, and wake all waiting requests.

        Connections look up their buckets when they see a new ``generation`` number.
        """
        self.generation += 1
        for line in list(self.lines.waiting):
            line.wake_all()

    def line(self, bucket: Bucket) -> Line:
        """Return the line of requests that wait for ``bucket``. The first call creates it."""
        if bucket.line is None:
            bucket.line = Line(self.lines)
        return bucket.line

    def is_broker(self, principal: str) -> bool:
        """Return whether the configuration says that this principal is a broker.

        A ``replica_id`` in a request is trusted only if a broker sent the request.
        """
        return principal in self._principals.brokers

    def buckets(self, *, principal: str, client_id: str, now_ms: int) -> tuple[Bucket, ...]:
        """Return the buckets to which requests of this client are charged, one for each kind in ``BUCKET_KINDS``."""
        return tuple(
            self.bucket(kind, principal=principal, client_id=client_id, now_ms=now_ms) for kind in self._managers
        )

    def bucket(self, kind: QuotaKind, *, principal: str, client_id: str, now_ms: int) -> Bucket:
        """Return the bucket that requests of this client are charged to for one kind of quota.

        A caller that keeps the bucket must ``hold`` it, and look it up again when ``generation`` changes.
        """
        user, is_exempt = self._principals.charged_user(principal)
        client = Tags(bounded(user), bounded(client_id))
        bucket = self._managers[kind].bucket(
            user=client.user, client_id=client.client_id, now_ms=now_ms, is_exempt=is_exempt
        )
        noted = self.newly_unlimited
        is_unlimited = bucket.rule is None and kind in _BYTES and not is_exempt
        if noted is not None and is_unlimited and len(noted) < MAX_NEWLY_UNLIMITED:
            noted[client] = kind
        self._follow_sharing()
        return bucket

    def hold(self, bucket: Bucket) -> None:
        """Count one more connection that keeps ``bucket`` and charges it without looking it up again.

        A bucket that any connection keeps is not removed to make room for other buckets.
        """
        bucket.holders += 1

    def release(self, bucket: Bucket, *, now_ms: int) -> None:
        """Undo one ``hold`` of ``bucket``. Each connection that called ``hold`` must call this once."""
        self._managers[bucket.kind].release(bucket, now_ms=now_ms)

    def throttled(self, bucket: Bucket, wait_ms: int, *, now_ms: int) -> None:
        """Count a throttled request, for its bucket and for the rule that limits the bucket.

        The response tells the client to wait ``wait_ms``.
        """
        added_ms = bucket.throttled(wait_ms, now_ms=now_ms)
        if bucket.rule is not None:
            self.rules.throttle_times[bucket.kind].add(bucket.rule, added_ms)

    def expire(self, *, now_ms: int) -> None:
        """Remove the buckets and the IP addresses that had no traffic for an hour."""
        for _ in self.expire_slices(now_ms=now_ms):
            pass

    def expire_slices(self, *, now_ms: int) -> Iterator[None]:
        """Remove the buckets and the IP addresses that had no traffic for an hour, in slices.

        Yields after each slice, so that the event loop can run other tasks.
        """
        for manager in self.managers:
            for removed in manager.expire_slices(now_ms=now_ms):
                if removed:
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
        return any(self.limits(kind) for kind in _REQUESTS)

    def _max_throttle_time_ms(self, config: ProxyConfig, kind: QuotaKind) -> int | None:
        """Return the longest throttle time that a response may contain, or None if there is no bound.

        For quotas on request time, the bound is at most the length of one quota window, as in Kafka.
        """
        most_ms = config.max_throttle_time_ms
        if kind is not QuotaKind.REQUEST:
            return most_ms
        window_ms = config.kafka.quota_window_size_seconds * 1_000
        return window_ms if most_ms is None else min(most_ms, window_ms)

    def _arithmetic(self, config: ProxyConfig, kind: QuotaKind) -> tuple[Shaping, int]:
        """Return how limits of this kind apply, and the milliseconds of unused quota that an idle client may save up.

        Limits on controller mutations always apply to a token bucket, as in Kafka.
        """
        if kind is QuotaKind.MUTATION:
            kafka = config.kafka
            return Shaping.PACED, kafka.controller_quota_window_num * kafka.controller_quota_window_size_seconds * 1_000
        return self._own_shaping or config.shaping, config.burst_ms

    def _windows(self, kafka: KafkaSettings, kind: QuotaKind) -> KafkaSettings:
        """Return the settings for the windows in which the usage of this kind of quota is measured.

        These are the settings in ``kafka``, except for controller mutations. Mutations are limited by a token bucket.
        Their rate is only a metric, so it is measured in the windows of Kafka's metrics.
        """
        if kind is not QuotaKind.MUTATION:
            return kafka
        # A token bucket limits mutations. Their rate is only a metric (ControllerMutationQuotaManager).
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
