"""A broker, the proxy's sessions in front of it, and clients that send any bytes at any moment, on a simulated clock.

The sessions are the proxy's own. The broker answers whole requests in order, a fetch with an empty response after its
``max_wait_ms``. What it got of each client is recorded with its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from struct import unpack_from
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import KafkaSettings, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext, Policy
from kafka_quota_proxy.proxy.session.counters import Counters
from tests.support.frames import FETCH, PRODUCE, fetch_response, other_response, produce_response

START_MS: Final = 86_400_000
_THROTTLE_AT: Final = 8  # in the responses of all APIs but Produce, in which it comes last


class Passed(NamedTuple):
    """A whole request that the broker got."""

    at_ms: int
    api_key: int
    size_bytes: int


class Client:
    """A connection. ``on_answer`` is called with the throttle time of each response, in ms."""

    def __init__(self, world: World, *, on_answer: Callable[[int], None] | None = None) -> None:
        self.passed: list[Passed] = []
        self.on_answer = on_answer
        self.has_left = False
        self.session = Session(world.context, owner=self)
        self._world = world
        self._at_broker = b""
        self._answers: list[int] = []  # the API keys of the responses on their way
        self._timer_ms = 0
        world.clients[self] = None

    def send(self, data: bytes) -> None:
        """Send bytes."""
        if not self.has_left:
            self._call(lambda now_ms: self.session.receive_from_client(data, now_ms=now_ms))

    def connect(self) -> None:
        """Note that the broker is connected, after ``session.await_broker``."""
        self._call(lambda now_ms: self.session.connect_broker(now_ms=now_ms))

    def reset(self) -> None:
        """End the connection at once."""
        self.has_left = True
        self._world.clients.pop(self)
        self.session.state.now_ns = self._world.now_ms * 1_000_000
        self.session.receive_end_from_client()
        self.session.close(now_ms=self._world.now_ms, has_passed=True)

    def take_turn(self) -> None:
        """Check again whether the waiting request may pass."""
        self._call(lambda now_ms: self.session.resume(now_ms=now_ms))

    def _call(self, step: Callable[[int], None]) -> None:
        if self.has_left:
            return
        world, state = self._world, self.session.state
        state.now_ns = world.now_ms * 1_000_000
        step(world.now_ms)
        if state.to_broker:
            self._reach_broker(b"".join(state.to_broker))
            state.to_broker.clear()
        if state.to_client:
            frames = b"".join(state.to_client)
            state.to_client.clear()
            self._receive(frames)
        wake_at_ms = self.session.needs.wake_at_ms
        if wake_at_ms > world.now_ms and not world.now_ms < self._timer_ms <= wake_at_ms:
            self._timer_ms = wake_at_ms
            world.call_at(wake_at_ms, self._wake)

    def _wake(self) -> None:
        if self._world.now_ms >= self._timer_ms:
            self._timer_ms = 0
            self._call(lambda now_ms: self.session.handle_timer(now_ms=now_ms))

    def _reach_broker(self, data: bytes) -> None:
        self._at_broker += data
        while len(self._at_broker) >= 4:
            size_bytes, api_key, _, correlation_id, name_bytes = unpack_from(">ihhih", self._at_broker.ljust(14))
            if len(self._at_broker) < 4 + size_bytes:
                break
            frame, self._at_broker = self._at_broker[: 4 + size_bytes], self._at_broker[4 + size_bytes :]
            self.passed.append(Passed(self._world.now_ms, api_key, size_bytes))
            response, answer_ms = other_response(correlation_id), self._world.answer_ms
            if api_key == PRODUCE:
                response = produce_response(correlation_id)
                if not unpack_from(">h", frame, 16 + name_bytes)[0]:
                    continue
            elif api_key == FETCH:
                response = fetch_response(correlation_id, size_bytes=62)
                answer_ms = unpack_from(">i", frame, 18 + name_bytes)[0]
            self._world.call_in(answer_ms, partial(self._answer, api_key, response))

    def _answer(self, api_key: int, response: bytes) -> None:
        self._answers.append(api_key)
        self._call(lambda now_ms: self.session.receive_from_broker(response, now_ms=now_ms))

    def _receive(self, frames: bytes) -> None:
        while frames:
            size_bytes = unpack_from(">i", frames)[0]
            api_key = self._answers.pop(0) if self._answers else FETCH  # the proxy answers fetches by itself
            at = size_bytes if api_key == PRODUCE else _THROTTLE_AT
            throttle_time_ms: int = unpack_from(">i", frames, at)[0]
            frames = frames[4 + size_bytes :]
            if self.on_answer is not None:
                self.on_answer(throttle_time_ms)


class World:
    """The broker, its quotas and all clients."""

    def __init__(self, *rules: QuotaRule, shaping: Shaping = Shaping.SAMPLED, max_buckets: int = 100_000) -> None:
        self.config = ProxyConfig(
            listeners=(),
            quotas=rules,
            shaping=shaping,
            max_throttle_time_ms=25_000,
            max_buckets=max_buckets,
            kafka=KafkaSettings(),
        )
        policy = Policy(104_857_600, self.config.enforcement, is_inter_broker=False, oauthbearer_claim="sub")
        self.context = ConnectionContext(policy, BrokerQuotas(self.config), Counters())
        self.context.quotas.lines.wake = lambda waiter: self.call_at(self.now_ms, waiter.take_turn)
        self.answer_ms = 1
        self.now_ms = START_MS
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._order = count()
        self.clients: dict[Client, None] = {}
        self.call_in(1_000, lambda: self.every(1_000, self._sweep))

    def _sweep(self) -> None:
        for client in self.clients:
            client.session.sweep(now_ms=self.now_ms)

    def change_rules(self, *rules: QuotaRule) -> None:
        """Put other rules in force, as a reload of the file does."""
        before = {(rule.user, rule.client_id): None for rule in self.config.quotas}
        self.config = replace(self.config, quotas=rules)
        changes = QuotaChanges(before | {(rule.user, rule.client_id): rule for rule in rules}, {})
        changed = self.context.quotas.rules.change(changes)
        self.context.quotas.update(self.config, changed=changed)

    def call_at(self, at_ms: int, call: Callable[[], object]) -> None:
        """Call a function at this time."""
        heappush(self._events, (max(at_ms, self.now_ms), next(self._order), call))

    def call_in(self, in_ms: int, call: Callable[[], object]) -> None:
        """Call a function after this time."""
        self.call_at(self.now_ms + in_ms, call)

    def every(self, period_ms: int, call: Callable[[], object]) -> None:
        """Call a function now, and again and again."""
        call()
        self.call_in(period_ms, lambda: self.every(period_ms, call))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_ms = self.now_ms + int(seconds * 1_000)
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, call = heappop(self._events)
            call()
        self.now_ms = end_ms

    def repeating(self, request: Callable[[], bytes]) -> Client:
        """Add a client that sends a request, and the next one as soon as it has waited for its throttle time."""

        def again(throttle_time_ms: int) -> None:
            self.call_in(throttle_time_ms, lambda: client.send(request()))

        client = Client(self, on_answer=again)
        self.call_in(0, lambda: client.send(request()))
        return client
