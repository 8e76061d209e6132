"""Estimates how much thread time a request costs a broker, which a ``request_percentage`` quota limits.

Kafka charges the time that its threads spend on a request. A proxy sees only the time from the end of a request to the
start of its response, in which the request may also wait. ``ServiceClock`` estimates how much of this time was work.
``charged_ns`` adds the time for reading and writing the bytes.

``bench/REQUEST_TIME.md`` says how each constant was measured, and how far the estimate is from the broker's own number.

Source: ``ClientRequestQuotaManager``, ``RequestChannel.Request`` and ``KafkaApis`` of Apache Kafka.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import ApiKey

# The hand-over of a request from a network thread to a request thread and back takes four times as long as the work,
# because each thread has to wake up. Only the work takes longer if several requests are served at once.
_HANDOVER_PARTS: Final = 4
# The longest time for work on a request that may wait, including the hand-over. The broker works twice on a fetch of
# data that has not arrived, and its threads have to wake up each time.
_SERVED_AT_MOST_NS: Final = 1_500_000
# A time that is later than any clock shows.
_NEVER_NS: Final = 1 << 63
# The time for 1,000 bytes. A request is read, checked and appended to the log. A response is written field by field.
# Fetched records are sent by sendfile.
_REQUEST_KB_NS: Final = 1_100
_RESPONSE_KB_NS: Final = 5_000
_FETCHED_KB_NS: Final = 80
_FETCHES: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})

# Requests between brokers, which Kafka counts as exempt-request-time.
_EXEMPT: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
    }
)


def is_exempt(api_key: int, *, is_broker: bool) -> bool:
    """Return whether a request is charged to no quota, because a broker sent it through an API between brokers.

    Kafka also checks whether the sender may act for the cluster. A proxy cannot see this.
    """
    return is_broker and api_key in _EXEMPT


# A request that a broker works on: the start in ns, the reading of the service clock at that time, a ticket if the
# request may wait (otherwise 0), and the service clock, because a listener may change to another clock before the
# response.
Service = tuple[int, int, int, "ServiceClock"]


class ServiceTime(NamedTuple):
    """The time from a request to its response, and the estimated part of it in which the broker worked."""

    elapsed_ns: int
    worked_ns: int


NO_TIME: Final = ServiceTime(0, 0)


class ServiceClock:
    """Divides the working time of one broker among the requests that are at the broker at once.

    A broker works on one request of a connection at a time. Some requests may wait at the broker, for example for data.
    If such a request has no response for a while, it counts as waiting, and gets no more of the broker's time.

    Args:
        parallel: The number of the broker's processors.
    """

    __slots__ = ("_at_ns", "_clock_ns", "_last_ticket", "_may_wait", "_parallel", "_served", "_waits_from_ns")

    def __init__(self, *, parallel: int = 1) -> None:
        self._parallel = parallel
        self._at_ns = 0
        self._clock_ns = 0
        self._served = 0
        # Ticket -> the time when its request begins to count as waiting, the soonest first.
        self._may_wait: dict[int, int] = {}
        self._last_ticket = 0
        self._waits_from_ns = _NEVER_NS  # the first of the times in _may_wait

    @property
    def served(self) -> int:
        """The estimated number of requests that the broker works on now."""
        return self._served

    def begin(self, *, may_wait: bool, now_ns: int) -> Service:
        """Note that the broker begins to work on a request. The caller must pass the result to ``end``.

        Call this when the request was forwarded and the connection's earlier requests were answered. ``may_wait`` says
        whether the request may wait at the broker, for example for data.
        """
        # The next lines advance the clock. They are repeated in ``end`` without a call, because each request runs both.
        if now_ns >= self._waits_from_ns:
            self._let_wait(now_ns)
        parallel, served = self._parallel, self._served
        parts = _HANDOVER_PARTS * parallel + (served if served > parallel else parallel)
        self._clock_ns += (now_ns - self._at_ns) * parallel // parts
        self._at_ns = now_ns
        self._served = served + 1
        ticket = 0
        if may_wait:
            ticket = self._last_ticket = self._last_ticket + 1
            waits_from_ns = self._may_wait[ticket] = now_ns + _SERVED_AT_MOST_NS
            if waits_from_ns < self._waits_from_ns:
                self._waits_from_ns = waits_from_ns
        return now_ns, self._clock_ns, ticket, self

    def end(self, service: Service, *, now_ns: int) -> ServiceTime:
        """Note that the broker no longer works on a request. Return how long it took and how much of this was work.

        Call this when the response begins to arrive, or when it is certain that there will be no response.
        """
        if now_ns >= self._waits_from_ns:
            self._let_wait(now_ns)
        parallel, served = self._parallel, self._served
        parts = _HANDOVER_PARTS * parallel + (served if served > parallel else parallel)
        self._clock_ns += (now_ns - self._at_ns) * parallel // parts
        self._at_ns = now_ns
        begun_ns, clock_ns, ticket, _ = service
        worked_ns = self._clock_ns - clock_ns
        if ticket and not self._may_wait.pop(ticket, 0):
            worked_ns = min(worked_ns, _SERVED_AT_MOST_NS // (_HANDOVER_PARTS + 1))
        else:
            self._served -= 1
        return ServiceTime(now_ns - begun_ns, worked_ns)

    def _let_wait(self, now_ns: int) -> None:
        """Find the requests on which the broker no longer works, because they wait, for example for data.

        From the time at which each of them began to wait, the broker's working time is divided among the others only.
        """
        self._waits_from_ns = _NEVER_NS
        while self._may_wait:
            ticket, waits_from_ns = next(iter(self._may_wait.items()))
            if waits_from_ns > now_ns:
                self._waits_from_ns = waits_from_ns
                break
            del self._may_wait[ticket]
            parts = _HANDOVER_PARTS * self._parallel + max(self._served, self._parallel)
            self._clock_ns += (waits_from_ns - self._at_ns) * self._parallel // parts
            self._at_ns = waits_from_ns
            self._served -= 1


def charged_ns(api_key: int, time: ServiceTime, *, request_bytes: int, response_bytes: int, scale: float = 1.0) -> int:
    """Return how much thread time to charge for a request, in nanoseconds.

    The estimate is multiplied by ``scale``, which corrects it for the speed of the broker's machine.
    """
    response_kb_ns = _FETCHED_KB_NS if api_key in _FETCHES else _RESPONSE_KB_NS
    bytes_ns = (request_bytes * _REQUEST_KB_NS + response_bytes * response_kb_ns) // 1_000
    return int((bytes_ns + time.worked_ns) * scale)
