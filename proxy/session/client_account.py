"""Who pays for a connection's requests, and how long its client must be silent for it."""

from collections.abc import Callable, Container
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import ANONYMOUS, Enforcement
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.client_quotas.api import Administration
from kafka_quota_proxy.proxy.client_quotas.sources.forwarded_alter import Authority
from kafka_quota_proxy.proxy.fair_queue.connection_queue import ListenerQueue
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.entity import MAX_NAME_LENGTH, Resolution, bounded
from kafka_quota_proxy.proxy.quota.open_connections import Identity, OpenConnections
from kafka_quota_proxy.proxy.quota.request_time import ServiceClock
from kafka_quota_proxy.proxy.replication.throttle import Leader
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses
from kafka_quota_proxy.proxy.session.counters import Counters


class RequestBuckets(NamedTuple):
    """What a request charges beside its bytes; None where there is no rule of that kind at all."""

    time: Bucket | None  # of QuotaKind.REQUEST
    rate: Bucket | None  # of QuotaKind.REQUEST_RATE


NO_BUCKETS: Final = RequestBuckets(None, None)
# Requests wait in the line of these before they pass; for the others a connection waits by itself.
IN_LINE: Final = frozenset({QuotaKind.PRODUCE, QuotaKind.FETCH})


class Policy(NamedTuple):
    """What a listener says about its connections."""

    max_frame_size_bytes: int
    enforcement: Enforcement
    is_inter_broker: bool
    oauthbearer_claim: str
    administration: Administration | None = None  # None: who asks for quotas asks the broker
    authority: Authority | None = None  # who follows the broker's own, where these are the rules


class ConnectionContext:
    """What the connections of one listener share: its policy (which a reload replaces), quotas and counters.

    ``addresses`` is None where clients may hear of the broker's own address; ``leader`` is the broker to those clients
    that are followers, None where nothing limits them; ``line`` the queue in front of it, None where there is none;
    ``service`` its time.
    ``finds_ids``: whether it has said that it knows topics by id. ``hear`` takes what answers a Metadata request, where
    it is to be found out which broker that is: all bytes that have come, where the answer begins, and its version.
    """

    __slots__ = ("addresses", "counters", "finds_ids", "hear", "leader", "line", "policy", "quotas", "service")

    def __init__(
        self,
        policy: Policy,
        quotas: BrokerQuotas,
        counters: Counters,
        addresses: Addresses | None = None,
        leader: Leader | None = None,
        line: ListenerQueue | None = None,
        service: ServiceClock | None = None,
    ) -> None:
        self.policy = policy
        self.quotas = quotas
        self.counters = counters
        self.leader = leader
        self.addresses = addresses
        self.finds_ids = False
        self.line = line
        self.service = service or ServiceClock()
        self.hear: Callable[[bytes, int, int], None] | None = None


class ClientAccount:
    """The identity of one connection, the buckets that it charges, and its mute."""

    __slots__ = (
        "_client_id",
        "_counted_as",
        "_counted_at",
        "_fetch_bucket",
        "_generation",
        "_is_newcomer",
        "_mutation_bucket",
        "_produce_bucket",
        "_request_buckets",
        "_slows_nothing",
        "asked_ms",
        "context",
        "is_known",
        "left",
        "muted_until_ms",
        "principal",
        "refusal",
    )

    def __init__(self, context: ConnectionContext) -> None:
        self.context = context
        self.principal = ANONYMOUS
        self.muted_until_ms = 0
        self.asked_ms = 0  # when the broker could begin with the oldest request that is charged to an observed bucket
        self.is_known = False  # whether it has said as whom its connection counts; the first that it comes as stays
        self.refusal = ""  # why the connection is to end: it is one too many
        self._counted_as: Identity | None = None
        self._counted_at: OpenConnections | None = None
        self.left: list[Bucket] = []  # held still, for requests of another client-id may be in flight
        self._slows_nothing = False
        self._client_id: bytes | None = None
        self._generation = -1
        self._is_newcomer = True  # to the buckets of this client-id
        self._produce_bucket: Bucket | None = None
        self._fetch_bucket: Bucket | None = None
        self._request_buckets: RequestBuckets | None = None
        self._mutation_bucket: Bucket | None = None

    def produce_bucket(self, client_id: bytes, now_ms: int) -> Bucket:
        """Return the bucket of the connection's Produce requests; kept until the rules or the client-id change."""
        self._come_as(client_id)
        if self._produce_bucket is None:
            self._produce_bucket = self._look_up(QuotaKind.PRODUCE, client_id, now_ms)
        return self._produce_bucket

    def fetch_bucket(self, client_id: bytes, now_ms: int) -> Bucket:
        """Return the bucket of its Fetch requests, likewise."""
        self._come_as(client_id)
        if self._fetch_bucket is None:
            self._fetch_bucket = self._look_up(QuotaKind.FETCH, client_id, now_ms)
        return self._fetch_bucket

    def request_buckets(self, client_id: bytes, now_ms: int) -> RequestBuckets:
        """Return the buckets that any of its requests charges beside its bytes, likewise."""
        quotas = self.context.quotas
        if not quotas.limits_requests:
            return NO_BUCKETS
        self._come_as(client_id)
        if self._request_buckets is None:
            time, rate = (
                self._look_up(kind, client_id, now_ms) if quotas.limits(kind) else None
                for kind in (QuotaKind.REQUEST, QuotaKind.REQUEST_RATE)
            )
            self._request_buckets = RequestBuckets(time, rate)
        return self._request_buckets

    def mutation_bucket(self, client_id: bytes, now_ms: int) -> Bucket:
        """Return the bucket of its requests about topics, likewise."""
        self._come_as(client_id)
        if self._mutation_bucket is None:
            self._mutation_bucket = self._look_up(QuotaKind.MUTATION, client_id, now_ms)
        return self._mutation_bucket

    def count(self, client_id: bytes) -> bool:
        """Take it that the connection is a user's with this client-id; return whether it may be one more of his.

        Brokers may have any number: those that are believed to be followers. To be called once.
        """
        self.is_known = True
        if self.believes_replicas():
            return True
        open_connections = self.context.quotas.connections
        identity = Identity(self.principal, bounded(client_id.decode("utf-8", "backslashreplace")))
        standing = open_connections.check(identity)
        exceeded = standing.exceeded
        if exceeded is not None:
            own = exceeded.rule.enforcement if exceeded.rule else None
            if (own or self.context.policy.enforcement) is not Enforcement.OBSERVE:
                self.refusal = _refusal(exceeded, standing.open_now)
                return False
            self.context.counters.observed_connections += 1
        open_connections.enter(identity, standing)
        self._counted_as, self._counted_at = identity, open_connections
        return True

    def log_in(self, principal: str) -> None:
        """Take it that the client is ``principal`` from its next request on."""
        self.principal = principal
        self._client_id = None

    def enforcement(self, bucket: Bucket) -> Enforcement:
        """Return what happens when ``bucket`` is over its limit: as its rule says, else as the listener does."""
        if self._slows_nothing:
            return Enforcement.OBSERVE
        return bucket.enforcement or self.context.policy.enforcement

    def observes(self, bucket: Bucket) -> bool:
        """Whether nothing is slowed for ``bucket``."""
        return self._slows_nothing or (bucket.enforcement or self.context.policy.enforcement) is Enforcement.OBSERVE

    def believes_replicas(self) -> bool:
        """Whether a ``replica_id`` sent on this connection is believed. Else it is a consumer's, and pays."""
        return self.context.policy.is_inter_broker or self.context.quotas.is_broker(self.principal)

    def slow_down(self, bucket: Bucket, wait_ms: int, *, now_ms: int, has_answer: bool = True) -> int:
        """Count that ``bucket`` is over its limit, and mute the client where that is how it is slowed.

        Args:
            bucket: what was charged.
            wait_ms: what the charge said; above 0. All of it is owed, whatever the client is told.
            now_ms: when it was charged.
            has_answer: whether there is an answer that can be held back; where not (acks=0), ``delay`` mutes as well.

        Returns:
            Milliseconds that the client is told; 0 where it is only observed.
        """
        enforcement = self.enforcement(bucket)
        self.context.counters.throttled(bucket)
        if enforcement is Enforcement.OBSERVE:
            took_ms = now_ms - self.asked_ms if bucket.holders <= 1 else 0  # else another goes on meanwhile
            bucket.observe(wait_ms, took_ms=took_ms, now_ms=now_ms)
            return 0
        bucket.silence(wait_ms, now_ms=now_ms)
        if enforcement is Enforcement.RESPOND and bucket.line:
            # The client's next request will find others in front of it: it is better announced than waited for.
            wait_ms = max(wait_ms, bucket.line_wait_ms(None, now_ms=now_ms))
        wait_ms = min(wait_ms, bucket.max_throttle_time_ms)
        bucket.throttled(wait_ms, now_ms=now_ms)
        if enforcement is Enforcement.RESPOND or not has_answer:
            self.mute(wait_ms, now_ms=now_ms)
        return wait_ms

    def answer_empty(self, bucket: Bucket, wait_ms: int, *, now_ms: int) -> int:
        """Count a fetch that is answered without records, and mute the client until its turn.

        Args:
            bucket: In whose line it waited.
            wait_ms: How long it will take for its turn to come.
            now_ms: The time.

        Returns:
            Milliseconds that the answer says, at least 1: by them a client knows that it is no mistake.
        """
        bucket.requests += 1
        bucket.last_record_ms = now_ms
        return self.put_off(bucket, wait_ms, now_ms=now_ms)

    def put_off(self, bucket: Bucket, wait_ms: int, *, now_ms: int) -> int:
        """Do as ``answer_empty`` with a fetch that has been charged: its broker has answered it without records."""
        wait_ms = max(1, min(wait_ms, bucket.max_throttle_time_ms))
        bucket.throttled(wait_ms, now_ms=now_ms)
        self.context.counters.throttled(bucket)
        if self.enforcement(bucket) is Enforcement.RESPOND:
            self.mute(wait_ms, now_ms=now_ms)
        return wait_ms

    def release(self) -> None:
        """End the mute, and slow nothing any more."""
        self.muted_until_ms = 0
        self._slows_nothing = True

    def mute(self, wait_ms: int, *, now_ms: int) -> None:
        """Do not take up requests for that long; a longer mute stays, and after ``release`` there is none."""
        if not self._slows_nothing:
            self.muted_until_ms = max(self.muted_until_ms, now_ms + wait_ms)

    def holds(self, bucket: Bucket) -> bool:
        """Whether ``bucket`` is one of those that are charged now."""
        return bucket is self._produce_bucket or bucket is self._fetch_bucket

    def let_go(self, in_flight: Container[Bucket | None], *, now_ms: int) -> None:
        """Hold no longer what was looked up for another client-id, but for what is still to be charged."""
        kept: dict[Bucket, None] = {}  # each once, however often its client-id came and went
        for bucket in self.left:
            if bucket in in_flight and bucket not in kept:
                kept[bucket] = None
            else:
                self.context.quotas.release(bucket, now_ms=now_ms)
        self.left = list(kept)

    def close(self, *, now_ms: int) -> None:
        """Hold nothing any more, and count no more; the last that is called."""
        if self._counted_as is not None and self._counted_at is not None:
            self._counted_at.leave(self._counted_as)  # the listener may lead to another broker by now
            self._counted_as = self._counted_at = None
        self._leave()
        self.let_go((), now_ms=now_ms)

    def _come_as(self, client_id: bytes) -> None:
        """Forget the buckets if they may be another's now."""
        generation = self.context.quotas.generation
        if client_id == self._client_id and generation == self._generation:
            return
        self._is_newcomer = client_id != self._client_id
        # A client-id may have 32 KB, which each connection would keep: a long one is looked up for each request.
        self._client_id = client_id if len(client_id) <= MAX_NAME_LENGTH else None
        self._generation = generation
        self._leave()

    def _leave(self) -> None:
        held = (self._produce_bucket, self._fetch_bucket, self._mutation_bucket, *(self._request_buckets or ()))
        self.left += [bucket for bucket in held if bucket is not None]
        self._produce_bucket = self._fetch_bucket = self._mutation_bucket = self._request_buckets = None

    def _look_up(self, kind: QuotaKind, client_id: bytes, now_ms: int) -> Bucket:
        quotas = self.context.quotas
        name = client_id.decode("utf-8", "backslashreplace")
        bucket = quotas.bucket(kind, principal=self.principal, client_id=name, now_ms=now_ms)
        quotas.hold(bucket)
        if self._is_newcomer and kind not in IN_LINE and not self.observes(bucket):
            # Else a client that reconnects after each request, or changes its client-id each time, would never wait.
            self.muted_until_ms = max(self.muted_until_ms, bucket.silent_until_ms)
        return bucket


def _refusal(exceeded: Resolution, open_now: int) -> str:
    tags, rule, _, limit = exceeded
    where = (rule.source if rule else "") or "a rule"
    return (
        f"user={tags.user!r} client-id={tags.client_id!r} has {open_now} connections open, "
        f"and {where} allows {limit:,.0f}"
    )
