"""What a request costs a broker, as far as that shows from outside: what ``request_percentage`` charges.

Kafka charges the time that its threads spend on a request. From outside there is only the time from the end of a
request to the beginning of its answer, and that is more: threads wake up for it, it queues with others, it waits for
data or for other brokers. ``ServiceClock`` says which part of that time was work; ``charged_ns`` adds what bytes take.

``docs/request-time.md`` says where each constant was measured, and how far the sum is from the broker's own number.

Source: ``ClientRequestQuotaManager``, ``RequestChannel.Request`` and ``KafkaApis`` of Apache Kafka.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import ApiKey

# For one part of work four parts of a request's time are hand-over: from a network thread to a request thread and back,
# each of which wakes up. As many requests as are served at once share the threads, but hand-over they do not share.
_HANDOVER_PARTS: Final = 4
# What may wait has been worked on for no longer, hand-over included: a fetch of what is not there yet is looked at
# twice, by threads that have slept.
_SERVED_AT_MOST_NS: Final = 1_500_000
# Later than any clock.
_NEVER_NS: Final = 1 << 63
# What 1,000 bytes take that are read, checked and copied into the log; that are put together field by field; that are
# fetched, and sent by sendfile.
_REQUEST_KB_NS: Final = 1_100
_RESPONSE_KB_NS: Final = 5_000
_FETCHED_KB_NS: Final = 80
_FETCHES: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})

# What brokers ask each other, which Kafka counts as exempt-request-time.
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
    """Whether a request is charged to no quota for its kind: a broker's, of an API that brokers have for each other.

    Kafka exempts such a request where its authorizer lets the sender act for the cluster, and charges it where not. No
    proxy sees that, for an answer may name no error: of a WriteTxnMarkers without markers it is empty either way.

    Args:
        api_key: Of the request.
        is_broker: Whether its sender is believed to be one.
    """
    return is_broker and api_key in _EXEMPT


# A request that a broker has begun with: when, in ns, what the clock showed then, the ticket of one that may wait (who
# does not has 0), and the clock, for a listener may go by another one before the request is answered.
Service = tuple[int, int, int, "ServiceClock"]


class ServiceTime(NamedTuple):
    """How long a broker had a request, and which part of that its threads worked on it."""

    elapsed_ns: int
    worked_ns: int


NO_TIME: Final = ServiceTime(0, 0)


class ServiceClock:
    """The time of one broker, shared by all that it serves at once: it shows how long one of them was worked on.

    A broker serves one request of a connection at a time: service begins when the last byte of a request has been
    passed on and the request before it has been answered. One that may wait and has not been answered for a while is
    taken to wait, and to have no share any more.

    Args:
        parallel: How many requests the broker serves at once without one being slower for the others: what processors
            it has for itself.
    """

    __slots__ = ("_at_ns", "_clock_ns", "_last_ticket", "_may_wait", "_parallel", "_served", "_waits_from_ns")

    def __init__(self, *, parallel: int = 1) -> None:
        self._parallel = parallel
        self._at_ns = 0
        self._clock_ns = 0
        self._served = 0
        self._may_wait: dict[int, int] = {}  # ticket -> from when on it is taken to wait, the soonest first
        self._last_ticket = 0
        self._waits_from_ns = _NEVER_NS  # nobody of these is taken to wait before

    @property
    def served(self) -> int:
        """How many requests the broker is taken to work on."""
        return self._served

    def begin(self, *, may_wait: bool, now_ns: int) -> Service:
        """Take it that the broker begins with a request; each is to ``end``.

        Args:
            may_wait: As ``proxy.fair_queue.request_kind`` says of it.
            now_ns: The time, which does not go backwards.
        """
        # The clock moves on; written out here and below: each request pays for it twice.
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
        """Take it that the answer begins to come, or never will, and return how long it took."""
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
        """Count those no longer that have not been answered for a while, each from when on it is taken to wait."""
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
    """Return what a request is charged.

    Args:
        api_key: Of the request.
        time: How long the broker had it.
        request_bytes: Size of the request.
        response_bytes: Size of the response.
        scale: What this broker's own number is of the one reckoned here; machines differ.

    Returns:
        Nanoseconds of a thread.
    """
    response_kb_ns = _FETCHED_KB_NS if api_key in _FETCHES else _RESPONSE_KB_NS
    bytes_ns = (request_bytes * _REQUEST_KB_NS + response_bytes * response_kb_ns) // 1_000
    return int((bytes_ns + time.worked_ns) * scale)
