"""A session between a simulated client and broker, with a simulated clock."""

from typing import cast

from kafka_quota_proxy.config.model import (
    MAX_BUCKETS,
    Address,
    Enforcement,
    KafkaSettings,
    ProxyConfig,
    QuotaRule,
    Shaping,
)
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.fair_queue.connection_queue import ListenerQueue
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.replication.throttle import Leader
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.address_rewrite import Addresses
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext, Policy
from kafka_quota_proxy.proxy.session.counters import Counters

# As from time.monotonic_ns: neither 0 nor an epoch.
START_MS = 86_400_000


UPSTREAM = Address(host="127.0.0.1", port=9092)


class Wire:
    """The client's and the broker's view of a session. ``wait`` moves the clock; nothing sleeps."""

    def __init__(
        self,
        *rules: QuotaRule,
        enforcement: Enforcement = Enforcement.RESPOND,
        shaping: Shaping = Shaping.SAMPLED,
        principals: Principals | None = None,
        is_inter_broker: bool = False,
        max_frame_size_bytes: int = 104_857_600,
        max_throttle_time_ms: int | None = None,
        max_buckets: int = MAX_BUCKETS,
        addresses: Addresses | None = None,
        leader: Leader | None = None,
        line: ListenerQueue | None = None,
        kafka: KafkaSettings | None = None,
    ) -> None:
        self.config = ProxyConfig(
            listeners=(),
            quotas=rules,
            shaping=shaping,
            principals=principals or Principals(),
            max_throttle_time_ms=max_throttle_time_ms,
            max_buckets=max_buckets,
            kafka=kafka or KafkaSettings(),
        )
        self.now_ms = START_MS
        policy = Policy(max_frame_size_bytes, enforcement, is_inter_broker, "sub")
        self.listening = ConnectionContext(policy, BrokerQuotas(self.config), Counters(), addresses, leader, line)
        self.session = Session(self.listening, owner=self)

    def client(self, *data: bytes) -> bytes:
        """Send each piece as the client; return what the broker gets."""
        for piece in data:
            self.session.state.now_ns = self.now_ms * 1_000_000
            self.session.receive_from_client(piece, now_ms=self.now_ms)
        return self.to_broker()

    def broker(self, *data: bytes) -> bytes:
        """Send each piece as the broker; return what the client gets."""
        for piece in data:
            self.session.state.now_ns = self.now_ms * 1_000_000
            self.session.receive_from_broker(piece, now_ms=self.now_ms)
        return self.to_client()

    def take_turn(self) -> None:
        """Look again whether a request may pass; what the session writes stays in it."""
        self.session.state.now_ns = self.now_ms * 1_000_000
        self.session.resume(now_ms=self.now_ms)

    def resume(self) -> bytes:
        """Let the session have its turn; return what the broker gets."""
        self.session.state.now_ns = self.now_ms * 1_000_000
        self.session.resume(now_ms=self.now_ms)
        return self.to_broker()

    def wait(self, wait_ms: int) -> None:
        """Let time pass, and the session be woken where it asked to be."""
        end_ms = self.now_ms + wait_ms
        while self.now_ms < (wake_at_ms := self.session.wake_at_ms) <= end_ms:
            self.now_ms = wake_at_ms
            self.session.state.now_ns = self.now_ms * 1_000_000
            self.session.handle_timer(now_ms=self.now_ms)
        self.now_ms = max(self.now_ms, end_ms)

    def woken(self) -> list["Wire"]:
        """Return the connections of this broker that should look again, and forget that they should."""
        turns = self.listening.quotas.lines
        woken = [cast(Wire, waiter) for waiter in turns.woken]
        turns.woken.clear()
        return woken

    def to_broker(self) -> bytes:
        """Take what waits to be written to the broker."""
        data = b"".join(self.session.state.to_broker)
        self.session.state.to_broker.clear()
        return data

    def to_client(self) -> bytes:
        """Take what waits to be written to the client."""
        data = b"".join(self.session.state.to_client)
        self.session.state.to_client.clear()
        return data

    def bucket(self, kind: str = "produce", *, client_id: str = "etl") -> Bucket:
        """Return the bucket that this client charges."""
        return self.listening.quotas.bucket(
            QuotaKind[kind.upper()],
            principal=self.session.account.principal,
            client_id=client_id,
            now_ms=self.now_ms,
        )

    @property
    def muted_for_ms(self) -> int:
        """How long the client's next request would wait."""
        return max(0, self.session.muted_until_ms - self.now_ms)
