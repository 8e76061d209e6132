"""The quota state of one broker: all kinds, and which names are folded together or exempt.

Kafka's quotas hold per broker, so all listeners in front of one upstream address share one of these.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from config.model import DEFAULT, UNLIMITED, Principals, ProxyConfig, QuotaRule, Shaping
from proxy.quota.changes import Changes, IpChanges, RuleChanges
from proxy.quota.client import Bucket, ClientQuotaManager
from proxy.quota.connections import ConnectionQuotas
from proxy.quota.entity import Entity, QuotaKind, bounded
from proxy.quota.open_connections import OpenConnections

_OF_STATIC_DEFAULTS: Final[Entity] = (None, DEFAULT)
_CLIENT_DEFAULT_SOURCES: Final = {
    QuotaKind.PRODUCE: "quota.producer.default",
    QuotaKind.FETCH: "quota.consumer.default",
}


def rules_of(config: ProxyConfig, kind: QuotaKind) -> tuple[QuotaRule, ...]:
    """Return the rules of ``kind``, with the static default of old brokers as level 8 where no rule stands there."""
    rules = tuple(rule for rule in config.quotas if kind.limit_of(rule) is not None)
    static = _static_default(config, kind)
    if static is None or any((rule.user, rule.client_id) == _OF_STATIC_DEFAULTS for rule in rules):
        return rules
    return (*rules, static)


def _static_default(config: ProxyConfig, kind: QuotaKind) -> QuotaRule | None:
    """Return the rule of a kind that holds where none stands for the default client-id."""
    if kind not in _CLIENT_DEFAULT_SOURCES:
        return None
    default = config.kafka.quota_producer_default if kind is QuotaKind.PRODUCE else config.kafka.quota_consumer_default
    if default >= UNLIMITED:
        return None
    source = _CLIENT_DEFAULT_SOURCES[kind]
    if kind is QuotaKind.PRODUCE:
        return QuotaRule(client_id=DEFAULT, producer_byte_rate=float(default), source=source)
    return QuotaRule(client_id=DEFAULT, consumer_byte_rate=float(default), source=source)


def _with_static_default(config: ProxyConfig, manager: ClientQuotaManager, rules: RuleChanges) -> RuleChanges:
    """Return ``rules`` with the static default as level 8 where by now it has to stand there, or no longer."""
    kind = manager.kind
    source = _CLIENT_DEFAULT_SOURCES.get(kind)
    if source is None:
        return rules
    is_changed = _OF_STATIC_DEFAULTS in rules
    standing = rules[_OF_STATIC_DEFAULTS] if is_changed else manager.table.rule(_OF_STATIC_DEFAULTS)
    if standing is not None and kind.limit_of(standing) is not None and standing.source != source:
        return rules
    static = _static_default(config, kind)
    return {**rules, _OF_STATIC_DEFAULTS: static} if is_changed or standing != static else rules


class PrincipalRules:
    """Folding and exemption of user names."""

    def __init__(self, principals: Principals) -> None:
        self._folds = tuple((re.compile(fold.match), fold.to) for fold in principals.fold)
        self._exempt = principals.exempt
        self.brokers = principals.brokers

    def charged_user(self, principal: str) -> tuple[str, bool]:
        """Return the user whose bucket ``principal`` charges, and whether it is exempt. The first match folds."""
        for pattern, to in self._folds:
            match = pattern.fullmatch(principal)
            if match:
                folded = match.expand(to)
                break
        else:
            folded = principal
        if principal in self._exempt or folded in self._exempt:
            return principal, True
        return folded, False


class BrokerQuotas:
    """The quotas of users and client-ids at one broker."""

    def __init__(self, config: ProxyConfig, *, shaping: Shaping | None = None) -> None:
        self._own_shaping = shaping
        self._principals = PrincipalRules(config.principals)
        self.generation = 0  # moves whenever a bucket that somebody keeps may be out of date or gone
        self._sharing_ended = 0
        self._managers = {kind: self._manager(config, kind) for kind in QuotaKind}
        self.limits_requests = self._limits_requests()
        self.request_time_scale = config.request_time_scale
        self.num_partitions = config.kafka.num_partitions  # what a topic has for which no number was asked
        self.arrivals = ConnectionQuotas(config)
        self.connections = OpenConnections(config.quotas, self._principals.charged_user)

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

    def update(self, config: ProxyConfig, *, shaping: Shaping | None = None, changes: Changes | None = None) -> None:
        """Put the rules of ``config`` in force, from the next request on; what was used stays.

        Args:
            config: All of the rules, and by what they are held.
            shaping: Of the listener, where it has its own.
            changes: Which rules differ from those in force: the others cost nothing. None: all may.
        """
        self._own_shaping = shaping
        self._principals = PrincipalRules(config.principals)
        self.generation += 1
        self.request_time_scale = config.request_time_scale
        self.num_partitions = config.kafka.num_partitions
        if changes is None:
            self.arrivals.update(config)
            self.connections.update(config.quotas, self._principals.charged_user)
        else:
            self.arrivals.change(changes.ips)
            self.arrivals.follow(config)
            self.connections.change(changes.rules)
            self.connections.follow(self._principals.charged_user)
        for manager in self.managers:
            if changes is None:
                manager.update(rules_of(config, manager.kind))
            else:
                manager.change(_with_static_default(config, manager, changes.rules))
            self._put_under(manager, config)
        self.limits_requests = self._limits_requests()

    def _put_under(self, manager: ClientQuotaManager, config: ProxyConfig) -> None:
        shaping, burst_ms = self._arithmetic(config, manager.kind)
        manager.follow(
            shaping=shaping,
            burst_ms=burst_ms,
            max_throttle_time_ms=self._max_throttle_time_ms(config, manager.kind),
            max_buckets=config.max_buckets,
        )

    def change(self, config: ProxyConfig, rules: RuleChanges) -> None:
        """Put single rules in force, or, with None, none, from the next request on.

        ``config`` has them already and differs in nothing else from the one in force. Entities as for
        ``RuleTable.put``.
        """
        has_changed = False
        for manager in self.managers:
            has_changed |= manager.change(_with_static_default(config, manager, rules))
        self.connections.change(rules)
        if has_changed:
            self.generation += 1
            self.limits_requests = self._limits_requests()

    def change_arrivals(self, ips: IpChanges) -> None:
        """Put single rules of addresses in force, or, with None, none, from the next connection on."""
        self.arrivals.change(ips)

    def renew(self) -> None:
        """Have every connection ask again for what it keeps."""
        self.generation += 1

    def is_broker(self, principal: str) -> bool:
        """Whether the ``replica_id`` of this principal's fetches is believed."""
        return principal in self._principals.brokers

    def buckets(self, *, principal: str, client_id: str, now_ms: int) -> tuple[Bucket, ...]:
        """Return the buckets that ``principal`` charges, one of each kind, in the order of ``QuotaKind``."""
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
                    self.generation += 1
                yield
            self._follow_sharing()
        yield from self.arrivals.expire_slices(now_ms=now_ms)

    def _follow_sharing(self) -> None:
        ended = sum(manager.sharing_ended for manager in self._managers.values())
        if ended != self._sharing_ended:
            self._sharing_ended = ended
            self.generation += 1

    def _limits_requests(self) -> bool:
        """Whether requests are charged beside their bytes."""
        return self.limits(QuotaKind.REQUEST) or self.limits(QuotaKind.REQUEST_RATE)

    def _max_throttle_time_ms(self, config: ProxyConfig, kind: QuotaKind) -> int | None:
        """Return how long one wait may be; for service time Kafka itself has a bound, one window.

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

    def _manager(self, config: ProxyConfig, kind: QuotaKind) -> ClientQuotaManager:
        shaping, burst_ms = self._arithmetic(config, kind)
        return ClientQuotaManager(
            kind,
            rules_of(config, kind),
            kafka=config.kafka,
            shaping=shaping,
            burst_ms=burst_ms,
            max_throttle_time_ms=self._max_throttle_time_ms(config, kind),
            max_buckets=config.max_buckets,
            is_logged=config.usage_log is not None,
        )
