"""Simulates many connections that share one quota, and the broker that answers their requests.

Each connection has a session of the proxy, and sends the next request as soon as the throttle time allows. The bytes
that pass are recorded with their time. The clock is simulated.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from random import Random
from struct import unpack_from
from typing import Final

from kafka_quota_proxy.config.model import Enforcement, KafkaSettings, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext, Policy
from kafka_quota_proxy.proxy.session.counters import Counters
from kafka_quota_proxy.proxy.session.unanswered import Unanswered
from tests.support.frames import FETCH, fetch_request, fetch_response, fetched_batch, produce_request, produce_response

START_MS: Final = 86_400_000
DEFAULT_MAX_THROTTLE_TIME_MS: Final = 25_000
MINUTE_MS: Final = 60_000
MAX_WAIT_MS: Final = 500  # the ``max_wait_ms`` of ``fetch_request``
EMPTY_BYTES: Final = 64


class Member:
    """One connection of a crowd and its client.

    Args:
        crowd: The crowd that the connection belongs to.
        number: The number of the connection in the crowd.
        role: ``"consumer"`` or ``"producer"``.
        obeys: Whether the client waits for throttle times. Otherwise it sends the next request at once.
        is_idle: Whether the broker has no data for the client's fetches, and answers them after their ``max_wait_ms``.
        request_bytes: Returns the size of the client's next request, or of the batch for its next fetch.
    """

    def __init__(
        self, crowd: "Crowd", number: int, role: str, *, obeys: bool, is_idle: bool, request_bytes: Callable[[], int]
    ) -> None:
        self.crowd = crowd
        self.number = number
        self.role = role
        self.obeys = obeys
        self.is_idle = is_idle
        self.request_bytes = request_bytes
        self.session = Session(crowd.listening, owner=self)
        self.has_left = False
        self._unanswered: Unanswered | None = None  # the requests at the broker when the client left
        self.is_stalled = False  # whether the broker no longer answers
        self.passed_bytes = 0
        self.empty_answers = 0
        self.longest_answer_ms = 0
        self.asked_ms = 0
        self._timer_ms = 0
        # For each fetch or request at the broker, in their order, the bytes that it is charged.
        self._answers: list[int] = []
        self._correlation_id = 0

    def leave(self) -> None:
        """Close the connection. A fetch without an answer is charged when its answer is ready."""
        self._unanswered = self.session.close(now_ms=self.crowd.now_ms, has_passed=True)
        self.has_left = True

    def ask(self) -> None:
        """Send the next request."""
        if self.has_left:
            return
        self._correlation_id += 1
        self.asked_ms = self.crowd.now_ms
        if self.role == "consumer":
            request = fetch_request(self._correlation_id, client_id="etl")
        else:
            request = produce_request(self._correlation_id, client_id="etl", size_bytes=self.request_bytes())
        self.session.state.now_ns = self.crowd.now_ms * 1_000_000
        self.session.receive_from_client(request, now_ms=self.crowd.now_ms)
        self.settle()

    def take_turn(self) -> None:
        """Let the session check again whether the client's request may pass."""
        if self.has_left:
            return
        self.session.state.now_ns = self.crowd.now_ms * 1_000_000
        self.session.resume(now_ms=self.crowd.now_ms)
        self.settle()

    def wake(self) -> None:
        """Handle the session's timers that are due."""
        if self.has_left:
            return
        self._timer_ms = 0
        if 0 < self.session.wake_at_ms <= self.crowd.now_ms:
            self.session.handle_timer(now_ms=self.crowd.now_ms)
        self.settle()

    def answer(self) -> None:
        """Let the broker answer the oldest request of this connection."""
        if self.is_stalled or (self.has_left and self._unanswered is None):
            return
        size_bytes = self._answers.pop(0)
        if self.role == "consumer":
            response = fetch_response if size_bytes <= EMPTY_BYTES else fetched_batch
            data = response(self._correlation_id, size_bytes=size_bytes)
        else:
            data = produce_response(self._correlation_id)
        if self._unanswered is not None:
            assert self._unanswered.receive(data, now_ms=self.crowd.now_ms)
        else:
            self.session.state.now_ns = self.crowd.now_ms * 1_000_000
            self.session.receive_from_broker(data, now_ms=self.crowd.now_ms)
            self.settle()
        self.passed_bytes += size_bytes
        self.crowd.note(size_bytes)

    def settle(self) -> None:
        """Deliver what the session wrote, and schedule the next time at which it wants to be woken."""
        session, crowd = self.session, self.crowd
        if session.state.to_broker:
            data = b"".join(session.state.to_broker)
            session.state.to_broker.clear()
            self._take_request(data)
        if session.state.to_client:
            data = b"".join(session.state.to_client)
            session.state.to_client.clear()
            self._take_answer(data)
        wake_at_ms = session.state.delayed_until_ms or session.wake_at_ms
        if wake_at_ms > crowd.now_ms and (not self._timer_ms or wake_at_ms < self._timer_ms):
            self._timer_ms = wake_at_ms
            crowd.at(wake_at_ms, self.wake)

    def _take_request(self, data: bytes) -> None:
        size_bytes, api_key = unpack_from(">ih", data)
        if api_key == FETCH:
            max_bytes: int = unpack_from(">i", data, 4 + 8 + 2 + len("etl") + 12)[0]
            batch_bytes = self.request_bytes()
            # The broker returns as many batches as fit, and at least one (KIP-74).
            size_bytes = batch_bytes * max(1, min(max_bytes, self.crowd.partition_bytes) // batch_bytes)
            size_bytes = EMPTY_BYTES if self.is_idle else size_bytes
        self._answers.append(size_bytes)
        answer_ms = MAX_WAIT_MS if self.is_idle else self.crowd.answer_ms()
        self.crowd.at(self.crowd.now_ms + answer_ms, self.answer)

    def _take_answer(self, data: bytes) -> None:
        crowd = self.crowd
        self.longest_answer_ms = max(self.longest_answer_ms, crowd.now_ms - self.asked_ms)
        throttle_time_ms = unpack_from(">i", data, 8 if self.role == "consumer" else len(data) - 4)[0]
        if self.role == "consumer" and len(data) < 30:
            self.empty_answers += 1
            assert throttle_time_ms > 0
        crowd.at(crowd.now_ms + (throttle_time_ms if self.obeys else 0), self.ask)


class Crowd:
    """The connections that share one quota and send without a pause, and the broker.

    Args:
        number: The number of connections.
        role: The role of all connections, ``"consumer"`` or ``"producer"``.
        shaping: The shaping of the quota.
        limit: The quota in bytes per second.
        enforcement: The enforcement of the listener.
        obeys: Returns whether the client with a number waits for throttle times.
        is_idle: Returns whether the broker has no data for the fetches of the client with a number.
        request_bytes: Draws the size of a request, or of a batch.
        answer_ms: Draws the broker's response time.
        seed: The seed of all random draws.
    """

    def __init__(
        self,
        number: int,
        role: str,
        shaping: Shaping,
        *,
        limit: float,
        enforcement: Enforcement = Enforcement.RESPOND,
        obeys: Callable[[int], bool] = lambda number: True,
        is_idle: Callable[[int], bool] = lambda number: False,
        request_bytes: Callable[[Random], int] = lambda random: 16_384,
        answer_ms: Callable[[Random], int] = lambda random: random.randint(1, 3),
        seed: int = 1,
    ) -> None:
        self.random = Random(seed)  # noqa: S311 - the same every time
        self.limit = limit
        self.partition_bytes = 1 << 20
        rule = QuotaRule(client_id="etl", producer_byte_rate=limit, consumer_byte_rate=limit)
        self.config = ProxyConfig(
            listeners=(),
            quotas=(rule,),
            shaping=shaping,
            principals=Principals(),
            max_throttle_time_ms=DEFAULT_MAX_THROTTLE_TIME_MS,
            kafka=KafkaSettings(),
        )
        self.now_ms = START_MS
        policy = Policy(104_857_600, enforcement, False, "sub")
        self.listening = ConnectionContext(policy, BrokerQuotas(self.config), Counters())
        self.listening.quotas.lines.wake = lambda waiter: self.at(self.now_ms, waiter.take_turn)
        self.answer_ms: Callable[[], int] = lambda: answer_ms(self.random)
        self.passed_ms: list[int] = []
        self.passed: list[int] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event = 0

        def draw_bytes() -> int:
            return request_bytes(self.random)

        self.members = [
            Member(self, n, role, obeys=obeys(n), is_idle=is_idle(n), request_bytes=draw_bytes) for n in range(number)
        ]
        for member in self.members:
            self.at(START_MS + self.random.randint(0, 200), member.ask)

    def at(self, at_ms: int, do: Callable[[], None]) -> None:
        """Schedule a call at a time of the simulated clock."""
        self._event += 1
        heappush(self._events, (at_ms, self._event, do))

    def note(self, amount: int) -> None:
        """Record bytes that pass now."""
        self.passed_ms.append(self.now_ms)
        self.passed.append(amount)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_ms = self.now_ms + int(seconds * 1_000)
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, do = heappop(self._events)
            do()
        self.now_ms = end_ms

    def minutes(self, *, after_s: float) -> list[float]:
        """Return the bytes of each minute, in multiples of what the quota allows.

        A minute begins every 250 ms. The first one begins after ``after_s``.
        """
        sums = [0, *accumulate(self.passed)]
        first_ms = START_MS + int(after_s * 1_000)
        starts: Sequence[int] = range(first_ms, self.now_ms - MINUTE_MS + 1, 250)
        of = [(bisect_left(self.passed_ms, at), bisect_left(self.passed_ms, at + MINUTE_MS)) for at in starts]
        return [(sums[end] - sums[begin]) / (self.limit * 60) for begin, end in of]

    def fairness(self) -> float:
        """Return the bytes of the slowest connection divided by the mean of all connections."""
        passed = [member.passed_bytes for member in self.members]
        return min(passed) * len(passed) / sum(passed)
