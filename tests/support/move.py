"""Simulates followers that fetch from a leader through the proxy and catch up with it. The clock is simulated."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafka_quota_proxy.config.model import KafkaSettings, Replication
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView
from kafka_quota_proxy.proxy.replication.throttle import Leader as ThrottledLeader
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.session import Session
from tests.support.replica_frames import Place, topic_id
from tests.support.replicas import Follower, Leader, Log
from tests.support.wire import START_MS, UPSTREAM, Wire

# The round-trip time between a follower, the proxy and the leader.
ROUND_TRIP_MS: Final = 2
LEADER: Final = 1


def view(topics: Iterable[str], **more: object) -> ClusterView:
    """Return a view of a cluster that has these topics, and the leader at ``UPSTREAM``."""
    return ClusterView(topic_names={topic_id(topic): topic for topic in topics}, node_ids={UPSTREAM: LEADER}, **more)  # type: ignore[arg-type]


class Move:
    """One leader behind a proxy, and followers with one connection each.

    Args:
        version: The version of the Fetch requests.
        logs: The size and the number of batches, by partition.
        replication: The section ``replication`` of the configuration file.
        cluster: The view of the cluster. By default it has the topics of ``logs``, and the leader.
        throttle: The throttle of a server. By default it is a new one with the rules of ``replication``.
        leader: The proxy's throttle of this leader. By default it is that of ``throttle`` for ``UPSTREAM``.
        round_trip_ms: The time from a follower's response to its next request, and from this request to its response.
    """

    def __init__(
        self,
        version: int,
        logs: Mapping[Place, tuple[int, int]],
        replication: Replication | None,
        cluster: ClusterView | None = None,
        *,
        throttle: Throttle | None = None,
        leader: ThrottledLeader | None = None,
        round_trip_ms: int = ROUND_TRIP_MS,
    ) -> None:
        self.throttle = throttle or Throttle(replication, KafkaSettings())
        if throttle is None or cluster is not None:
            self.throttle.see(cluster or view({topic for topic, _ in logs}), now_ms=START_MS)
        self.throttled = leader or self.throttle.leader(UPSTREAM)
        self.leader = Leader(version, {place: Log() for place in logs})
        for place, (size_bytes, count) in logs.items():
            self.leader.logs[place].append(size_bytes, count)
            self.leader.logs[place].is_in_sync = not count  # records that are written later are in sync at once
        self.now_ms = START_MS
        self.round_trip_ms = round_trip_ms
        self._ways: list[_Way] = []
        self._plans: list[tuple[int, Callable[[], None]]] = []

    @property
    def sessions(self) -> list[Session]:
        """Returns the proxy's session of each connection."""
        return [way.session for way in self._ways]

    def add(self, follower: Follower) -> Follower:
        self._ways.append(_Way(self, follower))
        return follower

    def reconnect(self, index: int) -> None:
        """Close the connection of a follower, and open another."""
        self._ways[index].reconnect()

    def at(self, after_ms: int, action: Callable[[], None]) -> None:
        """Schedule a call of ``action`` in ``after_ms``."""
        self._plans.append((self.now_ms + after_ms, action))

    def every(self, period_ms: int, until_ms: int, action: Callable[[], None]) -> None:
        """Schedule calls of ``action`` at regular intervals for ``until_ms``."""
        for after_ms in range(period_ms, until_ms, period_ms):
            self.at(after_ms, action)

    def change(self, replication: Replication | None) -> None:
        """Put another section ``replication`` in force, as a reload does."""
        self.throttle.update(replication, now_ms=self.now_ms)

    def run(self, span_ms: int) -> None:
        """Let time pass, and handle every event that is due."""
        end_ms = self.now_ms + span_ms
        self._plans.sort(key=lambda plan: plan[0])
        while True:
            due_ms = min([way.due_ms for way in self._ways] + [plan[0] for plan in self._plans[:1]])
            if due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            while self._plans and self._plans[0][0] <= self.now_ms:
                self._plans.pop(0)[1]()
                for way in self._ways:
                    way.look()
            for way in self._ways:
                if way.due_ms <= self.now_ms:
                    way.go_on()
        self.now_ms = end_ms


class _Way:
    """A follower, its session, and the requests and responses between the follower and the leader."""

    def __init__(self, move: Move, follower: Follower) -> None:
        self.due_ms = move.now_ms  # time of the next event
        self._move = move
        self._follower = follower
        self._wire = self._connect()
        self._waits_at_leader: bytes | None = None
        self._response: bytes | None = None  # a response that is on its way to the session
        self._is_idle = True

    @property
    def session(self) -> Session:
        return self._wire.session

    def go_on(self) -> None:
        wire, move = self._wire, self._move
        wire.now_ms = move.now_ms
        if self._response is not None:
            response, self._response = self._response, None
            third = len(response) // 3  # the response arrives in two pieces
            wire.session.receive_from_broker(response[:third], now_ms=move.now_ms)
            wire.session.receive_from_broker(response[third:], now_ms=move.now_ms)
        elif self._waits_at_leader is not None:
            self._ask(self._waits_at_leader, has_waited=True)
            return
        elif self._is_idle:
            self._is_idle = False
            wire.session.receive_from_client(self._follower.next_request(), now_ms=move.now_ms)
        else:
            wire.session.handle_timer(now_ms=move.now_ms)
        self._carry()

    def reconnect(self) -> None:
        """Close the connection of a follower, and open another."""
        self._wire.session.close(now_ms=self._move.now_ms, has_passed=False)
        self._follower.lose_connection()
        self._wire = self._connect()
        self._waits_at_leader = self._response = None
        self._is_idle = True
        self.due_ms = self._move.now_ms + self._move.round_trip_ms

    def look(self) -> None:
        """Answer the fetch that waits at the leader, if there is data for it now."""
        if self._waits_at_leader is not None:
            self._ask(self._waits_at_leader, has_waited=False)

    def _connect(self) -> Wire:
        return Wire(is_inter_broker=True, leader=self._move.throttled)

    def _carry(self) -> None:
        wire, move = self._wire, self._move
        to_broker, to_client = wire.to_broker(), wire.to_client()
        if to_client:
            self._follower.take(to_client, now_ms=move.now_ms)
            self._is_idle = True
            self.due_ms = move.now_ms + move.round_trip_ms
        elif to_broker:
            self._ask(to_broker, has_waited=False)
        else:
            self.due_ms = wire.session.needs.wake_at_ms
            assert self.due_ms > move.now_ms, "a session that waits says until when"

    def _ask(self, request: bytes, *, has_waited: bool) -> None:
        move = self._move
        self._response = move.leader.answer(request, has_waited=has_waited)
        if self._response is not None:
            self._waits_at_leader = None
            self.due_ms = move.now_ms + move.round_trip_ms
        elif self._waits_at_leader is None:
            self._waits_at_leader = request
            self.due_ms = move.now_ms + max(move.leader.wait_ms(request), 1)


def delivered(follower: Follower, begin_ms: int, end_ms: int, *, lagging: bool = True) -> int:
    """Return how many bytes a follower appended from ``begin_ms`` until ``end_ms``.

    Only records that it appended while it was lagging count, or only the others if ``lagging`` is False.
    """
    return sum(
        one.size_bytes for one in follower.deliveries if begin_ms <= one.at_ms < end_ms and one.was_lagging is lagging
    )
