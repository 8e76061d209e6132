"""One client's connection, without I/O: bytes and the time in; out, what to write and whether to go on reading.

The shell hands over what it read (``receive_from_client``, ``receive_from_broker``), calls ``handle_timer`` at
``wake_at_ms``, and afterwards writes ``to_broker`` and ``to_client``, clears them, and reads or not as ``reads_client``
and ``reads_broker`` say.

A body passes without being kept: a request waits here until its head has come, a response until its throttle time can
be written. What a client sent ahead waits for three reasons, in which case ``is_blocked``:

* it is muted: it was over its quota, ``muted_until_ms`` has not come;
* its next request would go over the quota while earlier ones are unanswered. A broker takes one request of a connection
  at a time; so do we where it matters, and where it does not, requests may be sent ahead and nobody waits for us;
* too many requests are unanswered.

Source of the order of things: ``KafkaApis.handleProduceRequest`` and ``handleFetchRequest``; KIP-219.
"""

from collections import deque
from struct import Struct
from typing import Final, NamedTuple

from config.model import ANONYMOUS, Enforcement
from protocol import api_versions, fetch, produce
from protocol.api import ApiKey
from protocol.errors import HeadTooLong, ProtocolError, UnexpectedResponse
from protocol.header import MAX_HEAD_BYTES, RequestHead, read_request_head, read_response_head
from proxy.counters import Counters
from proxy.quota.broker import BrokerQuotas
from proxy.quota.client import Bucket

PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
API_VERSIONS: Final = int(ApiKey.API_VERSIONS)

# A broker has no such bound, for it reads one request at a time; ours keeps a client that never reads answers from
# filling memory with what is still expected. librdkafka and Java have at most 5 produce requests in flight each.
MAX_IN_FLIGHT: Final = 256
# Produce and ApiVersions responses are held whole to be written into. 1 MiB is a produce response of some 20,000
# partitions; what is longer passes unwritten (its client is muted all the same).
MAX_HELD_RESPONSE_BYTES: Final = 1024 * 1024
_MAX_RESPONSE_BYTES: Final = 2**31 - 1
_INT32: Final = Struct(">i")
_TWO_INT32: Final = Struct(">ii")


class InFlight(NamedTuple):
    """A request that awaits its response. ``bucket`` is None where the response is charged to nobody."""

    correlation_id: int
    api_key: int
    api_version: int
    size_bytes: int
    bucket: Bucket | None


class Policy(NamedTuple):
    """What a listener says about its connections."""

    max_frame_size_bytes: int
    enforcement: Enforcement
    is_inter_broker: bool


class Listening:
    """What the sessions of one listener share: its policy (which a reload replaces), quotas and counters."""

    __slots__ = ("counters", "policy", "quotas")

    def __init__(self, policy: Policy, quotas: BrokerQuotas, counters: Counters) -> None:
        self.policy = policy
        self.quotas = quotas
        self.counters = counters


class Session:
    """The state of one client connection. Not to be used further after it raised ``ProtocolError``."""

    __slots__ = (
        "_acks0",
        "_answer",
        "_client_at",
        "_client_data",
        "_client_id",
        "_broker_at",
        "_broker_data",
        "_fetch_bucket",
        "_fetches_in_flight",
        "_generation",
        "_in_flight",
        "_listening",
        "_produce_bucket",
        "_request_left",
        "_response_left",
        "answered",
        "delayed_until_ms",
        "is_blocked",
        "muted_until_ms",
        "principal",
        "to_broker",
        "to_client",
    )

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self.principal = ANONYMOUS
        self.to_broker: list[bytes] = []
        self.to_client: list[bytes] = []
        self.is_blocked = False
        self.muted_until_ms = 0
        self.delayed_until_ms = 0
        self.answered = -1  # the API of the response that began last; the shell takes it and puts -1
        self._in_flight: deque[InFlight] = deque()
        self._fetches_in_flight = 0
        # What the client sent and was not passed on yet begins at _client_at in _client_data; likewise the broker's.
        self._client_data = b""
        self._client_at = 0
        self._request_left = 0  # bytes of a request's body that are still to pass
        self._acks0: tuple[Bucket, int] | None = None  # to be charged when that body has passed
        self._broker_data = b""
        self._broker_at = 0
        self._response_left = 0
        self._answer: tuple[InFlight, int] | None = None  # a response begun, charged, and not yet written
        self._client_id: bytes | None = None
        self._generation = -1
        self._produce_bucket: Bucket | None = None
        self._fetch_bucket: Bucket | None = None

    # -- what the shell asks --

    @property
    def reads_client(self) -> bool:
        """Whether to go on reading what the client sends."""
        return not self.is_blocked

    @property
    def reads_broker(self) -> bool:
        """Whether to go on reading what the broker sends."""
        return not self.delayed_until_ms

    @property
    def wake_at_ms(self) -> int:
        """When to call ``handle_timer``; 0: no need to."""
        if self.delayed_until_ms:
            return self.delayed_until_ms
        return self.muted_until_ms if self.is_blocked else 0

    @property
    def is_idle(self) -> bool:
        """Whether everything that can be answered has been, and nothing waits to be passed on."""
        return not (
            self._in_flight
            or self.is_blocked
            or self._request_left
            or self._response_left
            or self._broker_at < len(self._broker_data)
        )

    @property
    def in_flight(self) -> int:
        """How many requests await their response."""
        return len(self._in_flight)

    # -- what the shell tells --

    def receive_from_client(self, data: bytes, *, now_ms: int) -> None:
        """Take what the client sent.

        Raises:
            ProtocolError: this is not Kafka's protocol; close the connection.
        """
        left = self._request_left
        if left:
            if len(data) < left:
                self._request_left = left - len(data)
                self.to_broker.append(data)
                return
            if len(data) == left:
                self.to_broker.append(data)
                self._end_request(now_ms)
                return
            self.to_broker.append(data[:left])
            self._end_request(now_ms)
            self._client_at = left
            self._client_data = data
        elif self._client_at < len(self._client_data):
            self._client_data = self._client_data[self._client_at :] + data
            self._client_at = 0
        else:
            self._client_data = data
            self._client_at = 0
        self._pass_requests(now_ms)

    def receive_from_broker(self, data: bytes, *, now_ms: int) -> None:
        """Take what the broker sent.

        Raises:
            ProtocolError: this answers nothing that was asked; close the connection.
        """
        if self._broker_at < len(self._broker_data):
            self._broker_data = self._broker_data[self._broker_at :] + data
            self._broker_at = 0
            if self.delayed_until_ms:
                return
        elif self._response_left >= len(data):
            self._response_left -= len(data)
            self.to_client.append(data)
            return
        else:
            self._broker_data = data
            self._broker_at = 0
        self._pass_responses(now_ms)

    def handle_timer(self, *, now_ms: int) -> None:
        """Go on with what has waited long enough."""
        if self.delayed_until_ms and now_ms >= self.delayed_until_ms:
            self.delayed_until_ms = 0
            self._pass_responses(now_ms)
        elif self.is_blocked:
            self._pass_requests(now_ms)

    def close(self) -> None:
        """Give back what was reserved for answers that will not come."""
        for request in self._in_flight:
            if request.bucket is not None and request.api_key == PRODUCE:
                request.bucket.in_flight_bytes -= request.size_bytes
        self._in_flight.clear()

    # -- requests --

    def _pass_requests(self, now_ms: int) -> None:
        """Pass on all requests that may pass."""
        data = self._client_data
        start = position = self._client_at
        end = len(data)
        self.is_blocked = False
        counters = self._listening.counters
        while position < end:
            if now_ms < self.muted_until_ms or self.delayed_until_ms or len(self._in_flight) >= MAX_IN_FLIGHT:
                self.is_blocked = True
                break
            head = read_request_head(data, position, self._listening.policy.max_frame_size_bytes)
            if head is None:
                break
            api_key = head.api_key
            if api_key == PRODUCE:
                if not self._admit_produce(data, head, now_ms):
                    break
            elif api_key == FETCH:
                cap = self._admit_fetch(data, position, head, now_ms)
                if cap is None:
                    break
                if cap:
                    at = cap[0]
                    self.to_broker += (data[start:at], cap[1])
                    start = at + len(cap[1])
            else:
                self._in_flight.append(InFlight(head.correlation_id, api_key, head.api_version, head.size_bytes, None))
            counters.frame(api_key, head.api_version)
            position += 4 + head.size_bytes
            if position > end:
                self._request_left = position - end
                position = end
            elif self._acks0 is not None:
                self._end_request(now_ms)
        if position > start:
            self.to_broker.append(data if position - start == end else data[start:position])
        self._client_at = position
        if position == end:
            self._client_data = b""
            self._client_at = 0
        elif not self.is_blocked and end - position > self._max_waiting_bytes():
            raise HeadTooLong(f"the head of a request has not ended after {end - position} bytes")

    def _admit_produce(self, data: bytes, head: RequestHead, now_ms: int) -> bool:
        acks = produce.read_acks(data, head.body, head.api_version)
        if acks is None:
            return False
        bucket = self._buckets(head.client_id, now_ms)[0]
        if (
            self._in_flight
            and not bucket.has_room(head.size_bytes, now_ms=now_ms)
            and self._enforcement(bucket) is not Enforcement.OBSERVE
        ):
            self.is_blocked = True
            return False
        if acks == 0:
            self._acks0 = (bucket, head.size_bytes)
        else:
            bucket.in_flight_bytes += head.size_bytes
            self._in_flight.append(InFlight(head.correlation_id, PRODUCE, head.api_version, head.size_bytes, bucket))
        return True

    def _admit_fetch(
        self, data: bytes, position: int, head: RequestHead, now_ms: int
    ) -> tuple[()] | tuple[int, bytes] | None:
        """Return None to wait, () to pass the fetch as it is, or where to put which bytes instead."""
        limits = fetch.read_limits(data, head.body, head.api_version)
        if limits is None:
            return None
        request = InFlight(head.correlation_id, FETCH, head.api_version, head.size_bytes, None)
        if self._believes_replicas():
            frame_end = position + 4 + head.size_bytes
            if frame_end > len(data):
                return None
            if fetch.read_replica_id(data, head.body, frame_end, head.api_version) >= 0:
                self._in_flight.append(request)
                return ()
        bucket = self._buckets(head.client_id, now_ms)[1]
        is_held_to = bucket.is_limited and self._enforcement(bucket) is not Enforcement.OBSERVE
        if is_held_to and self._fetches_in_flight:
            # How much a fetch will bring is known only from its answer: one at a time.
            self.is_blocked = True
            return None
        self._fetches_in_flight += 1
        self._in_flight.append(request._replace(bucket=bucket))
        return _capped(limits, bucket.max_fetch_bytes) if is_held_to else ()

    def _end_request(self, now_ms: int) -> None:
        self._request_left = 0
        if self._acks0 is not None:
            bucket, size_bytes = self._acks0
            self._acks0 = None
            self._charge(bucket, size_bytes, now_ms, mutes_at_once=True)

    def _max_waiting_bytes(self) -> int:
        """Return how much may be kept of a request whose head is not yet whole. A follower's fetch is read to its end."""
        return self._listening.policy.max_frame_size_bytes if self._believes_replicas() else 2 * MAX_HEAD_BYTES

    def _believes_replicas(self) -> bool:
        listening = self._listening
        return listening.policy.is_inter_broker or listening.quotas.is_broker(self.principal)

    def _buckets(self, client_id: bytes, now_ms: int) -> tuple[Bucket, Bucket]:
        """Return the buckets for produce and fetch, kept until the rules or the client-id change."""
        quotas = self._listening.quotas
        produce_bucket, fetch_bucket = self._produce_bucket, self._fetch_bucket
        if (
            produce_bucket is None
            or fetch_bucket is None
            or self._generation != quotas.generation
            or client_id != self._client_id
        ):
            name = client_id.decode("utf-8", "backslashreplace")
            produce_bucket, fetch_bucket = quotas.buckets(principal=self.principal, client_id=name, now_ms=now_ms)
            self._produce_bucket, self._fetch_bucket = produce_bucket, fetch_bucket
            self._generation = quotas.generation
            self._client_id = client_id
        return produce_bucket, fetch_bucket

    # -- responses --

    def _pass_responses(self, now_ms: int) -> None:
        """Pass on all responses that may pass, each charged when its first bytes are here."""
        data = self._broker_data
        start = position = self._broker_at
        end = len(data)
        if self._response_left:
            position += min(self._response_left, end - position)
            self._response_left -= position - start
        while position < end:
            if self._answer is None:
                head = read_response_head(data, position, _MAX_RESPONSE_BYTES)
                if head is None:
                    break
                request = self._pop(head.correlation_id)
                wait_ms = self._charge_response(request, head.size_bytes, now_ms)
                if wait_ms or request.api_key == API_VERSIONS:
                    self._answer = (request, wait_ms)
                frame_bytes = head.size_bytes + 4
            else:
                request, wait_ms = self._answer
                frame_bytes = 4 + _INT32.unpack_from(data, position)[0]
            if self._answer is not None:
                patch = self._patch(data, position, frame_bytes, request, wait_ms, now_ms)
                if patch is None:
                    break
                self._answer = None
                at, replacement = patch
                if self._delays(request, wait_ms):
                    # Everything from this frame on waits, patched, until the time has come.
                    self.delayed_until_ms = now_ms + wait_ms
                    if position > start:
                        self.to_client.append(data[start:position])
                    self._response_left = frame_bytes
                    self._broker_data = data[position:at] + replacement + data[at + len(replacement) :]
                    self._broker_at = 0
                    return
                if replacement:
                    if at > start:
                        self.to_client.append(data[start:at])
                    self.to_client.append(replacement)
                    start = at + len(replacement)
            position += frame_bytes
            if position > end:
                self._response_left = position - end
                position = end
        if position > start:
            self.to_client.append(data if position - start == end else data[start:position])
        self._broker_at = position
        if position == end:
            self._broker_data = b""
            self._broker_at = 0
        if self.is_blocked:
            self._pass_requests(now_ms)

    def _pop(self, correlation_id: int) -> InFlight:
        """Return the request that a response answers: the oldest, for a broker answers in order."""
        if not self._in_flight:
            raise UnexpectedResponse(f"a response with correlation_id {correlation_id} answers no request")
        request = self._in_flight.popleft()
        if request.correlation_id != correlation_id:
            raise UnexpectedResponse(
                f"a response has correlation_id {correlation_id}, expected was {request.correlation_id} "
                f"(api_key {request.api_key}, version {request.api_version})"
            )
        self.answered = request.api_key
        return request

    def _charge_response(self, request: InFlight, size_bytes: int, now_ms: int) -> int:
        """Charge what a response has made known; return the wait that is to be enforced, in milliseconds."""
        bucket = request.bucket
        if bucket is None:
            return 0
        if request.api_key == PRODUCE:
            bucket.in_flight_bytes -= request.size_bytes
            return self._charge(bucket, request.size_bytes, now_ms)
        self._fetches_in_flight -= 1
        return self._charge(bucket, fetch.charged_bytes(size_bytes, request.api_version), now_ms)

    def _charge(self, bucket: Bucket, amount: int, now_ms: int, *, mutes_at_once: bool = False) -> int:
        wait_ms = bucket.charge(amount, now_ms=now_ms)
        if wait_ms <= 0:
            return 0
        enforcement = self._enforcement(bucket)
        is_enforced = enforcement is not Enforcement.OBSERVE
        bucket.throttled(wait_ms, now_ms=now_ms, is_enforced=is_enforced)
        self._listening.counters.throttled(bucket)
        if not is_enforced:
            return 0
        if enforcement is Enforcement.RESPOND or mutes_at_once:
            self.muted_until_ms = max(self.muted_until_ms, now_ms + wait_ms)
        return wait_ms

    def _patch(
        self, data: bytes, position: int, frame_bytes: int, request: InFlight, wait_ms: int, now_ms: int
    ) -> tuple[int, bytes] | None:
        """Return where in ``data`` to put which bytes, b"" where nothing can be written; None: not all is here."""
        nothing = (position, b"")
        if request.api_key == FETCH:
            at = fetch.throttle_time_offset(data, position, request.api_version)
            if at is None or (at >= 0 and at + 4 > len(data)):
                return None
            return nothing if at < 0 else self._larger(data, at, wait_ms, now_ms)
        if frame_bytes > MAX_HELD_RESPONSE_BYTES:
            return nothing
        if position + frame_bytes > len(data):
            return None
        frame = data[position : position + frame_bytes]
        try:
            if request.api_key == API_VERSIONS:
                return position, api_versions.narrow(frame, request.api_version)
            offset = produce.throttle_time_offset(frame, request.api_version)
        except ProtocolError as error:
            # A broker newer than we know: its answer passes as it is.
            self._listening.counters.protocol_error(error.reason)
            return nothing
        return nothing if offset is None else self._larger(data, position + offset, wait_ms, now_ms)

    def _larger(self, data: bytes, at: int, wait_ms: int, now_ms: int) -> tuple[int, bytes]:
        """Put the larger of the broker's throttle time and ours; a client that is muted is muted for that long."""
        throttle_time_ms = max(wait_ms, _INT32.unpack_from(data, at)[0])
        if self.muted_until_ms > now_ms:
            self.muted_until_ms = max(self.muted_until_ms, now_ms + throttle_time_ms)
        return at, _INT32.pack(throttle_time_ms)

    def _delays(self, request: InFlight, wait_ms: int) -> bool:
        return wait_ms > 0 and request.bucket is not None and self._enforcement(request.bucket) is Enforcement.DELAY

    def _enforcement(self, bucket: Bucket) -> Enforcement:
        return bucket.enforcement or self._listening.policy.enforcement


def _capped(limits: fetch.FetchLimits, max_fetch_bytes: int) -> tuple[()] | tuple[int, bytes]:
    """Lower a fetch's max_bytes, and min_bytes with it, to what the quota allows in a window (KAFKA-9677)."""
    if limits.max_bytes <= max_fetch_bytes or limits.max_bytes_offset < 0:
        return ()
    # min_bytes and max_bytes are neighbours in every version.
    return limits.min_bytes_offset, _TWO_INT32.pack(min(limits.min_bytes, max_fetch_bytes), max_fetch_bytes)
