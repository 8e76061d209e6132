"""Who pays for a connection's requests, and how long its client must be silent for it."""

from collections.abc import Container
from typing import NamedTuple

from config.model import ANONYMOUS, Enforcement
from proxy.addresses import Addresses
from proxy.counters import Counters
from proxy.quota.broker import BrokerQuotas
from proxy.quota.client import Bucket
from proxy.quota.entity import MAX_NAME_LENGTH


class Policy(NamedTuple):
    """What a listener says about its connections."""

    max_frame_size_bytes: int
    enforcement: Enforcement
    is_inter_broker: bool
    oauthbearer_claim: str


class Listening:
    """What the connections of one listener share: its policy (which a reload replaces), quotas and counters.

    ``addresses`` is None where clients may hear of the broker's own address.
    """

    __slots__ = ("addresses", "counters", "policy", "quotas")

    def __init__(
        self, policy: Policy, quotas: BrokerQuotas, counters: Counters, addresses: Addresses | None = None
    ) -> None:
        self.policy = policy
        self.quotas = quotas
        self.counters = counters
        self.addresses = addresses


class Account:
    """The identity of one connection, the buckets that it charges, and its mute."""

    __slots__ = (
        "_client_id",
        "_fetch_bucket",
        "_generation",
        "_produce_bucket",
        "held",
        "left",
        "listening",
        "muted_until_ms",
        "principal",
    )

    def __init__(self, listening: Listening) -> None:
        self.listening = listening
        self.principal = ANONYMOUS
        self.muted_until_ms = 0
        self.left: list[Bucket] = []  # held still, for requests of another client-id may be in flight
        self.held: tuple[Bucket, ...] = ()  # of this client-id
        self._client_id: bytes | None = None
        self._generation = -1
        self._produce_bucket: Bucket
        self._fetch_bucket: Bucket

    def produce_bucket(self, client_id: bytes, now_ms: int) -> Bucket:
        """Return the bucket of the connection's Produce requests; kept until the rules or the client-id change."""
        if client_id != self._client_id or self._generation != self.listening.quotas.generation:
            self._look_up(client_id, now_ms)
        return self._produce_bucket

    def fetch_bucket(self, client_id: bytes, now_ms: int) -> Bucket:
        """Return the bucket of its Fetch requests, likewise."""
        if client_id != self._client_id or self._generation != self.listening.quotas.generation:
            self._look_up(client_id, now_ms)
        return self._fetch_bucket

    def log_in(self, principal: str) -> None:
        """Take it that the client is ``principal`` from its next request on."""
        self.principal = principal
        self._client_id = None

    def enforcement(self, bucket: Bucket) -> Enforcement:
        """Return what happens when ``bucket`` is over its limit: as its rule says, else as the listener does."""
        return bucket.enforcement or self.listening.policy.enforcement

    def observes(self, bucket: Bucket) -> bool:
        """Whether nothing is slowed for ``bucket``."""
        return (bucket.enforcement or self.listening.policy.enforcement) is Enforcement.OBSERVE

    def believes_replicas(self) -> bool:
        """Whether a ``replica_id`` sent on this connection is believed. Else it is a consumer's, and pays."""
        return self.listening.policy.is_inter_broker or self.listening.quotas.is_broker(self.principal)

    def slow_down(self, bucket: Bucket, wait_ms: int, *, now_ms: int, has_answer: bool = True) -> int:
        """Count that ``bucket`` is over its limit, and mute the client where that is how it is slowed.

        Args:
            bucket: what was charged.
            wait_ms: what the charge said; above 0.
            now_ms: when it was charged.
            has_answer: whether there is an answer to be held back; without one (acks=0), ``delay`` mutes as well.

        Returns:
            Milliseconds that the client is to be slowed down; 0 where it is only observed.
        """
        enforcement = self.enforcement(bucket)
        is_enforced = enforcement is not Enforcement.OBSERVE
        bucket.throttled(wait_ms, now_ms=now_ms, is_enforced=is_enforced)
        self.listening.counters.throttled(bucket)
        if not is_enforced:
            return 0
        if enforcement is Enforcement.RESPOND or not has_answer:
            self.mute(wait_ms, now_ms=now_ms)
        return wait_ms

    def mute(self, wait_ms: int, *, now_ms: int) -> None:
        """Do not take up requests for that long; a longer mute stays."""
        self.muted_until_ms = max(self.muted_until_ms, now_ms + wait_ms)

    def let_go(self, in_flight: Container[Bucket | None], *, now_ms: int) -> None:
        """Hold no longer what was looked up for another client-id, but for what is still to be charged."""
        kept: dict[Bucket, None] = {}  # each once, however often its client-id came and went
        for bucket in self.left:
            if bucket in in_flight and bucket not in kept:
                kept[bucket] = None
            else:
                self.listening.quotas.release(bucket, now_ms=now_ms)
        self.left = list(kept)

    def close(self, *, now_ms: int) -> None:
        """Hold nothing any more; the last that is called."""
        self.left += self.held
        self.held = ()
        self.let_go((), now_ms=now_ms)

    def _look_up(self, client_id: bytes, now_ms: int) -> None:
        quotas = self.listening.quotas
        buckets = quotas.buckets(
            principal=self.principal, client_id=client_id.decode("utf-8", "backslashreplace"), now_ms=now_ms
        )
        for bucket in buckets:
            quotas.hold(bucket)
        self.left += self.held
        self.held = buckets
        self._produce_bucket, self._fetch_bucket = buckets
        # A client-id may have 32 KB, which each connection would keep: a long one is looked up for each request.
        self._client_id = client_id if len(client_id) <= MAX_NAME_LENGTH else None
        self._generation = quotas.generation
