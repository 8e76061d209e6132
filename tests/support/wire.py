"""Runs a session of the proxy between a simulated client and a simulated broker, with a simulated clock."""

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

# The simulated clock starts like a monotonic clock, neither at 0 nor at a Unix time.
START_MS = 86_400_000


UPSTREAM = Address(host="127.0.0.1", port=9092)


class Wire:
    """Acts as the client and the broker of a session. ``wait`` moves the clock, and nothing sleeps."""

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

    def beside(self) -> "Wire":
        """Return another connection of the same client to the same broker."""
        other = Wire()
        other.listening, other.now_ms = self.listening, self.now_ms
        other.session = Session(self.listening, owner=other)
        return other

    def client(self, *data: bytes) -> bytes:
        """Send each piece of bytes as the client. Return the bytes that the broker gets."""
        for piece in data:
            self.session.state.now_ns = self.now_ms * 1_000_000
            self.session.receive_from_client(piece, now_ms=self.now_ms)
        return self.to_broker()

    def broker(self, *data: bytes) -> bytes:
        """Send each piece of bytes as the broker. Return the bytes that the client gets."""
        for piece in data:
            self.session.state.now_ns = self.now_ms * 1_000_000
            self.session.receive_from_broker(piece, now_ms=self.now_ms)
        return self.to_client()

    def take_turn(self) -> None:
        """Let the session check again whether a request may pass. Bytes that the session writes stay in the session."""
        self.session.state.now_ns = self.now_ms * 1_000_000
        self.session.resume(now_ms=self.now_ms)

    def resume(self) -> bytes:
        """Let the session check again whether a request may pass. Return the bytes that the broker gets."""
        self.session.state.now_ns = self.now_ms * 1_000_000
        self.session.resume(now_ms=self.now_ms)
        return self.to_broker()

    def wait(self, wait_ms: int) -> None:
        """Let time pass, and wake the session at every time at which it asked to be woken."""
        end_ms = self.now_ms + wait_ms
        while self.now_ms < (wake_at_ms := self.session.needs.wake_at_ms) <= end_ms:
            self.now_ms = wake_at_ms
            self.session.state.now_ns = self.now_ms * 1_000_000
            self.session.handle_timer(now_ms=self.now_ms)
        self.now_ms = max(self.now_ms, end_ms)

    def woken(self) -> list["Wire"]:
        """Return and forget the connections of this broker that are to check again whether a request may pass."""
        turns = self.listening.quotas.lines
        woken = [cast(Wire, waiter) for waiter in turns.woken]
        turns.woken.clear()
        return woken

    def to_broker(self) -> bytes:
        """Return and remove the bytes that wait to be written to the broker."""
        data = b"".join(self.session.state.to_broker)
        self.session.state.to_broker.clear()
        return data

    def to_client(self) -> bytes:
        """Return and remove the bytes that wait to be written to the client."""
        data = b"".join(self.session.state.to_client)
        self.session.state.to_client.clear()
        return data

    def bucket(self, kind: str = "produce", *, client_id: str = "etl") -> Bucket:
        """Return the token bucket or rate that the requests of this client are charged to."""
        return self.listening.quotas.bucket(
            QuotaKind[kind.upper()],
            principal=self.session.account.principal,
            client_id=client_id,
            now_ms=self.now_ms,
        )

    @property
    def muted_for_ms(self) -> int:
        """Returns how long the client's next request would have to wait."""
        return max(0, self.session.muted_until_ms - self.now_ms)
