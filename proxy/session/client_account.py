"""Keeps a client's identity, the buckets that are charged for its requests, and how long the client is muted."""

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.config.principals import ANONYMOUS
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.fair_queue.connection_queue import ListenerQueue
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import HAS_LINE, Bucket
from kafka_quota_proxy.proxy.quota.entity import Resolution
from kafka_quota_proxy.proxy.quota.line import Place
from kafka_quota_proxy.proxy.quota.open_connections import Identity
from kafka_quota_proxy.proxy.quota.request_time import ServiceClock
from kafka_quota_proxy.proxy.quota.rule_tables import MAX_NAME_LENGTH, bounded
from kafka_quota_proxy.proxy.replication.throttle import Leader
from kafka_quota_proxy.proxy.rules.api import Administration
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.counters import Counters


class RequestBuckets(NamedTuple):
    """The bucket charged for a request's time at the broker, and the one charged 1 for each request.

    Either is None if no rule sets such a limit.
    """

    time: Bucket | None  # the bucket of QuotaKind.REQUEST
    rate: Bucket | None  # the bucket of QuotaKind.REQUEST_RATE


NO_BUCKETS: Final = RequestBuckets(None, None)


class Policy(NamedTuple):
    """The settings of a listener that determine how its connections are handled."""

    max_frame_size_bytes: int
    enforcement: Enforcement
    is_inter_broker: bool
    oauthbearer_claim: str
    administration: Administration | None = None  # if None, requests about client quotas go to the broker


@dataclass(slots=True, eq=False, repr=False)
class ConnectionContext:
    """Holds what all connections of one listener to one broker share, for example quotas and counters.

    Attributes:
        policy: The listener's settings. They are replaced when the configuration is reloaded.
        quotas: The quotas that apply to the broker, and their buckets.
        counters: The listener's counters.
        addresses: Replaces brokers' addresses in responses. None if clients may see the brokers' own addresses.
        leader: The limits on replication from the broker to its followers, or None without such limits.
        queue: The fair call queue, which limits how many requests the broker gets at a time. None without such a limit.
        service: Estimates how long the broker works on each request.
        finds_ids: Whether the broker's Metadata API can look topics up by id.
        on_metadata: A function that is called with each Metadata response while the broker's node id is unknown. Its
            arguments are the received bytes, the offset at which the response begins, and the response's API version.
    """

    policy: Policy
    quotas: BrokerQuotas
    counters: Counters
    addresses: Addresses | None = None
    leader: Leader | None = None
    queue: ListenerQueue | None = None
    service: ServiceClock = field(default_factory=ServiceClock)
    finds_ids: bool = False
    on_metadata: Callable[[bytes, int, int], None] | None = None


@dataclass(slots=True, eq=False, repr=False)
class ClientAccount:
    """Holds the identity of a connection's client and the buckets to charge, and throttles the client.

    Attributes:
        context: What this connection shares with others.
        principal: The user that the client has logged in as.
        peer_host: The client's address.
        muted_until_ms: The time until which no request of the client is forwarded.
        held_mute_ms: For how long the client will be muted from the time at which it reads its responses again. Until
            then, no request is forwarded. 0 if there is no such time.
        broker_began_ms: The earliest time at which the broker can have begun to work on the oldest pending request.
        is_counted: Whether ``count_connection`` was called.
        refusal: The reason why the connection has to be closed, or an empty text if it may stay open.
        stale_buckets: Buckets that were looked up for earlier client-ids or rules. Each is kept until no pending
            request needs it.
    """

    context: ConnectionContext
    principal: str = ANONYMOUS
    peer_host: str = ""
    muted_until_ms: int = 0
    held_mute_ms: int = 0
    broker_began_ms: int = 0
    is_counted: bool = False
    refusal: str = ""
    _counted_as: Identity | None = None
    stale_buckets: list[Bucket] = field(default_factory=list)
    _slows_nothing: bool = False
    _holds_mute: bool = False  # whether the client does not read its responses
    _client_id: bytes | None = None
    _generation: int = -1
    _is_new: bool = True  # whether the client-id differs from the client-id before
    _buckets: dict[QuotaKind, Bucket] = field(default_factory=dict)
    _request_buckets: RequestBuckets | None = None

    def bucket(self, kind: QuotaKind, client_id: bytes, now_ms: int) -> Bucket:
        """Return the bucket that is charged for requests with this client-id, by the quota of this kind."""
        self._use_client_id(client_id)
        bucket = self._buckets.get(kind)
        if bucket is None:
            bucket = self._buckets[kind] = self._look_up(kind, client_id, now_ms)
        return bucket

    def request_buckets(self, client_id: bytes, now_ms: int) -> RequestBuckets:
        """Return the buckets that are charged for the time, and for the number, of requests with this client-id."""
        quotas = self.context.quotas
        if not quotas.limits_requests:
            return NO_BUCKETS
        self._use_client_id(client_id)
        if self._request_buckets is None:
            for kind in (QuotaKind.REQUEST, QuotaKind.REQUEST_RATE):
                if quotas.limits(kind):
                    self._buckets[kind] = self._look_up(kind, client_id, now_ms)
            time, rate = self._buckets.get(QuotaKind.REQUEST), self._buckets.get(QuotaKind.REQUEST_RATE)
            self._request_buckets = RequestBuckets(time, rate)
        return self._request_buckets

    def count_connection(self, client_id: bytes) -> bool:
        """Count the connection towards the limits on open connections. Returns False if it exceeds a limit.

        If it does, the attribute ``refusal`` says which limit. A connection that may come from another broker is not
        counted. Call this once for each connection, when the client's principal and client-id are known.
        """
        self.is_counted = True
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
        self._counted_as = identity
        return True

    def leave_count(self) -> None:
        """Undo ``count_connection``, because the client has gone. May be called again."""
        if self._counted_as is not None:
            self.context.quotas.connections.leave(self._counted_as)
            self._counted_as = None

    def log_in(self, principal: str) -> None:
        """Note that the client has logged in as ``principal``, whose buckets are charged from the next request on."""
        self.principal = principal
        self._client_id = None

    def enforcement(self, bucket: Bucket) -> Enforcement:
        """Return how the limit of a bucket is enforced: as its rule says, or else as the listener's settings say.

        After ``release``, all limits are only observed.
        """
        if self._slows_nothing:
            return Enforcement.OBSERVE
        return bucket.enforcement or self.context.policy.enforcement

    def observes(self, bucket: Bucket) -> bool:
        """Return whether ``bucket`` is only observed, so that it throttles no request."""
        return self._slows_nothing or (bucket.enforcement or self.context.policy.enforcement) is Enforcement.OBSERVE

    def believes_replicas(self) -> bool:
        """Return whether the client may be a broker. Its fetches with a ``replica_id`` then count as a follower's."""
        return self.context.policy.is_inter_broker or self.context.quotas.is_broker(self.principal)

    def throttle(
        self, bucket: Bucket, wait_ms: int, *, now_ms: int, place: Place | None = None, has_answer: bool = True
    ) -> int:
        """Throttle the client because ``bucket`` is over its limit, and return the throttle time for the response.

        For the next ``wait_ms`` milliseconds, no request is forwarded that would be charged to the bucket.
        ``place`` is the place of the connection's next request in the bucket's line, if that waits already.
        ``has_answer`` is False if there is no response that could be delayed. The client is then muted even if the
        enforcement is ``delay``.

        Returns:
            The throttle time in milliseconds, or 0 if the bucket is only observed.
        """
        enforcement = self.enforcement(bucket)
        if enforcement is Enforcement.OBSERVE:
            self.context.counters.throttled(bucket, self.peer_host, 0, None, now_ms=now_ms)
            took_ms = now_ms - self.broker_began_ms if bucket.holders <= 1 else 0  # other connections do not wait
            bucket.observe(wait_ms, took_ms=took_ms, now_ms=now_ms)
            return 0
        wait_ms = bucket.silence(wait_ms, now_ms=now_ms)
        if enforcement is Enforcement.RESPOND and bucket.line:
            # The throttle time includes the time that the requests of other clients in the line will take.
            wait_ms = max(wait_ms, bucket.line_wait_ms(place, now_ms=now_ms))
        wait_ms = min(wait_ms, bucket.max_throttle_time_ms)
        self._make_wait(bucket, wait_ms, now_ms, is_muted=enforcement is Enforcement.RESPOND or not has_answer)
        return wait_ms

    def silence(self, bucket: Bucket, wait_ms: int, *, now_ms: int) -> None:
        """Forward no request of other connections for ``wait_ms``, after a charge for which nobody gets a response.

        If the bucket is only observed, note instead that nobody owes the charge.
        """
        if wait_ms > 0:
            if self.observes(bucket):
                bucket.observed_requests = bucket.usage.requests
            else:
                bucket.silence(wait_ms, now_ms=now_ms)

    def put_off(self, bucket: Bucket, wait_ms: int, *, now_ms: int) -> int:
        """Throttle the client of a fetch that is answered without records, and return the throttle time.

        The throttle time is at least 1 ms, so that the client can see that the fetch was throttled.
        """
        wait_ms = max(1, min(wait_ms, bucket.max_throttle_time_ms))
        self._make_wait(bucket, wait_ms, now_ms, is_muted=self.enforcement(bucket) is Enforcement.RESPOND)
        return wait_ms

    def _make_wait(self, bucket: Bucket, wait_ms: int, now_ms: int, *, is_muted: bool) -> None:
        """Count that the client waits because of ``bucket``. Unless its answer is held back instead, it is muted."""
        by = BlockedBy.THROTTLE_TIME if is_muted else BlockedBy.DELAYED_ANSWER
        self.context.counters.throttled(bucket, self.peer_host, wait_ms, by, now_ms=now_ms)
        self.context.quotas.throttled(bucket, wait_ms, now_ms=now_ms)
        if is_muted:
            self.mute(wait_ms, now_ms=now_ms)

    def release(self) -> None:
        """Unmute the client, and do not throttle it any more, because the proxy is about to stop."""
        self.muted_until_ms = self.held_mute_ms = 0
        self._slows_nothing = True

    def mute(self, wait_ms: int, *, now_ms: int) -> None:
        """Mute the client for at least ``wait_ms`` milliseconds. After ``release`` this has no effect."""
        if not self._slows_nothing:
            self.muted_until_ms = max(self.muted_until_ms, now_ms + wait_ms)
            if self._holds_mute:
                self.held_mute_ms = max(self.held_mute_ms, wait_ms)

    def hold_mute(self, *, now_ms: int) -> None:
        """Let no throttle time pass, because the client does not read the responses that announce it."""
        self._holds_mute = True
        self.held_mute_ms = 0 if self._slows_nothing else max(0, self.muted_until_ms - now_ms)

    def begin_mute(self, *, now_ms: int) -> None:
        """Begin the throttle time that ``hold_mute`` has held, because the client reads its responses again."""
        self._holds_mute = False
        held_ms, self.held_mute_ms = self.held_mute_ms, 0
        if held_ms:
            self.mute(held_ms, now_ms=now_ms)

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets that the client's requests were charged to last, one for each kind of quota it has used."""
        return list(self._buckets.values())

    @property
    def client_id(self) -> str | None:
        """The client-id of the last request. It is None before the first request, or if it is very long."""
        client_id = self._client_id  # Read only once, because the admin port reads this in another thread.
        return None if client_id is None else client_id.decode("utf-8", "backslashreplace")

    def holds(self, bucket: Bucket) -> bool:
        """Return whether ``bucket`` is one of those that are now charged for the client's requests."""
        return bucket in self._buckets.values()

    def release_stale(self, in_flight: Container[Bucket | None], *, now_ms: int) -> None:
        """Tell the quotas that this connection no longer uses the buckets of the client's earlier client-ids and rules.

        Buckets in ``in_flight`` are kept, because they will be charged for pending requests.
        """
        kept: dict[Bucket, None] = {}  # each bucket once, however often its client-id was used
        for bucket in self.stale_buckets:
            if bucket in in_flight and bucket not in kept:
                kept[bucket] = None
            else:
                self.context.quotas.release(bucket, now_ms=now_ms)
        self.stale_buckets = list(kept)

    def close(self, *, now_ms: int) -> None:
        """Release all buckets, and stop counting the connection. This is the last call."""
        self.leave_count()
        self._set_aside()
        self.release_stale((), now_ms=now_ms)

    def uses(self, client_id: bytes) -> bool:
        """Return whether the buckets that are held are those of this client-id, by the rules in force."""
        return client_id == self._client_id and self._generation == self.context.quotas.generation

    def _use_client_id(self, client_id: bytes) -> None:
        """Mark the buckets as stale if the client-id or the rules have changed."""
        generation = self.context.quotas.generation
        if client_id == self._client_id and generation == self._generation:
            return
        self._is_new = client_id != self._client_id
        # A client-id may have 32 KB, which is too much to keep for each connection. If a client-id is long, the buckets
        # are looked up for each request.
        self._client_id = client_id if len(client_id) <= MAX_NAME_LENGTH else None
        self._generation = generation
        self._set_aside()

    def _set_aside(self) -> None:
        self.stale_buckets += self._buckets.values()
        self._buckets = {}  # not emptied, because the admin port may read them in another thread
        self._request_buckets = None

    def _look_up(self, kind: QuotaKind, client_id: bytes, now_ms: int) -> Bucket:
        quotas = self.context.quotas
        name = client_id.decode("utf-8", "backslashreplace")
        bucket = quotas.bucket(kind, principal=self.principal, client_id=name, now_ms=now_ms)
        quotas.hold(bucket)
        if self._is_new and kind not in HAS_LINE and not self.observes(bucket):
            # Otherwise a client that reconnects for each request, or changes its client-id each time, would never wait.
            self.muted_until_ms = max(self.muted_until_ms, ceil(bucket.silent_until_ms))
        return bucket


def _refusal(exceeded: Resolution, open_now: int) -> str:
    tags, rule, _, limit = exceeded
    where = (rule.source if rule else "") or "a rule"
    return (
        f"user={tags.user!r} client-id={tags.client_id!r} has {open_now} connections open, "
        f"and {where} allows {limit:,.0f}"
    )
