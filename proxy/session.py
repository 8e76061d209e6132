"""One client's connection, without I/O: bytes and the time in; out, what to write and whether to go on reading.

The shell hands over what it read (``receive_from_client``, ``receive_from_broker``), calls ``handle_timer`` at
``wake_at_ms``, and after each of them writes ``to_broker`` and ``to_client``, clears them, and reads each side or not
as ``is_blocked`` and ``delayed_until_ms`` say.

A body passes without being kept: a request waits here until its head has come, a response until its throttle time can
be written. What a client sent ahead ``is_blocked`` for one of these reasons:

* it is muted: it was over its quota, and ``muted_until_ms`` has not come;
* its next request would go over the quota while earlier ones are unanswered. A broker takes one request of a connection
  at a time. So do we where it matters; where it does not, requests are sent ahead and nobody waits for us;
* too many requests are unanswered, or one of a login is: who pays for the next one depends on it.

A follower's fetch may wait for a fourth: nothing of what it asks for may flow now (``proxy.replication``).

Source of the order of things: ``KafkaApis.handleProduceRequest`` and ``handleFetchRequest``; KIP-219.
"""

from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from config.model import Enforcement
from protocol import api_versions, fetch, produce, sasl
from protocol.api import API_NAMES, HIGHEST_VERSION, ApiKey
from protocol.api_versions import CEILINGS
from protocol.errors import (
    FrameTooLarge,
    FrameTooSmall,
    HeadTooLong,
    ProtocolError,
    TokenAfterRefusal,
    UnexpectedResponse,
    UnknownVersion,
)
from protocol.header import MAX_HEAD_BYTES, RequestHead, read_request_head
from protocol.metadata_query import FIRST_TOPIC_ID
from protocol.mutations import FIRST_STRICT, is_mutation
from protocol.node_endpoints import HiddenEndpoints, names_nobody
from protocol.refusals import REFUSABLE, refuse
from proxy.account import NOBODY, Account, Listening, Payers
from proxy.addresses import ADDRESSED, MOVED, READABLE, may_name_leaders, streams
from proxy.admission import Sent, begin, has_room, longest
from proxy.calls import Call, Line, Turn
from proxy.counters import FAILED
from proxy.exchange import Answered, Ask, Decision, Exchange, Forward, Hold
from proxy.login import LOGIN_APIS, Login, Verdict
from proxy.mutations import MAX_REQUEST_BYTES, Mutations
from proxy.quota.client import Bucket
from proxy.quota.entity import QuotaKind, bounded
from proxy.replication.follower import Follower
from proxy.rewrite import NOTHING, Change, capped_fetch, response_change
from proxy.service_time import Asked, is_exempt

PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
API_VERSIONS: Final = int(ApiKey.API_VERSIONS)

# A broker needs no such bound, for it reads one request at a time; ours keeps a client that never reads answers from
# filling memory with what is still expected. Java has 5 produce requests in flight at the most.
MAX_IN_FLIGHT: Final = 256
_RESPONSE_HEAD: Final = Struct(">ii").unpack_from  # size_bytes and correlation_id
_RESPONSE_HEAD_BYTES: Final = 8
# In the place of an api_key: a broker's bare token, behind a SaslHandshake v0.
_TOKEN: Final = -1
# Likewise: a request whose answer is read whole, by who has decided on it.
_EXCHANGED: Final = -2
_LOGIN_ANSWERS: Final = LOGIN_APIS | {_TOKEN}
# What a client sends before it is known as whom it comes.
_OF_NOBODY: Final = LOGIN_APIS | {API_VERSIONS}
_CHANGED: Final = (API_VERSIONS, _EXCHANGED)  # whatever else there is to do

# A follower's fetch is kept whole and walked to its end: 100,000 partitions take 5 MB.
MAX_REPLICA_FETCH_BYTES: Final = 8 * 1024 * 1024
# So is its answer, of which 64 MiB are asked for at the most (in a session, where nothing lags, what he wants).
# What is longer is one enormous batch. Up to v2 there is no such limit, and each partition may bring its own.
MAX_EXCHANGED_BYTES: Final = 512 * 1024 * 1024

# What the queue refuses has to be walked for its partitions; what is longer is held.
MAX_REFUSED_BYTES: Final = 1024 * 1024
# And how long its client is to be silent: well below what clients time out after.
REFUSED_FOR_MS: Final = 500

# A client-id and a transactional id have up to 32 KB each: not to be kept for each connection.
_MAX_HABIT_BYTES: Final = 1024

# A mute that does not end: no further request is taken up.
_FOR_EVER: Final = 1 << 62

# size_bytes and correlation_id of a request; api_key and api_version lie between them.
_SIZE_AND_ID: Final = Struct(">i4xi").unpack_from

# A request that awaits its response: correlation_id, api_key, api_version, size_bytes, the bucket that is charged for
# its bytes (None: nobody's), and what it is charged beside them. A plain tuple: there is one for every request that
# passes.
InFlight = tuple[int, int, int, int, Bucket | None, Sent | None]
# A response that has begun: api_key, api_version, length with size prefix, wait in ms, whether to hold it that long.
Answer = tuple[int, int, int, int, bool]


class Habit(NamedTuple):
    """What a client's Produce requests (or its Fetches) have in common: all of the head but size and correlation_id.

    Reading a head takes longer than all that is decided on it, comparing it with the last one a fraction of that.
    """

    api: bytes  # api_key and api_version
    front: bytes  # from client_id on: of a Produce to the end of acks, of a Fetch to the body
    api_key: int
    api_version: int
    acks: int
    bucket: Bucket
    payers: Payers
    identity: str | None  # whose turn it has to be; None: there is no queue
    is_plain: bool  # it is charged for its bytes and nothing else, and waits for nobody
    generation: int  # of the rules that gave the buckets
    front_end: int  # where ``front`` ends, from the frame's start


class Session:
    """The state of one client connection. Not to be used further after it raised ``ProtocolError``."""

    __slots__ = (
        "_acks0",
        "_answer",
        "_broker_at",
        "_broker_data",
        "_call",
        "_client_at",
        "_client_data",
        "_come_bytes",
        "_exchange",
        "_fetches_in_flight",
        "_follower",
        "_habit",
        "_held_until_ms",
        "_hidden",
        "_in_flight",
        "_is_refused",
        "_login",
        "_most_in_flight",
        "_mutations",
        "_parts",
        "_parts_left",
        "_question",
        "_reads_responses",
        "_request_left",
        "_response_left",
        "_since_ns",
        "account",
        "answered",
        "delayed_until_ms",
        "is_blocked",
        "is_ending",
        "now_ns",
        "owner",
        "peer_host",
        "to_broker",
        "to_client",
    )

    def __init__(self, listening: Listening, owner: object = None) -> None:
        self.account = Account(listening)
        self.owner = owner  # to be woken by whoever gives it a turn (``resume``)
        self.peer_host = ""
        self.to_broker: list[bytes] = []
        self.to_client: list[bytes] = []
        self.is_blocked = False  # do not read the client: what it sent waits here
        self.is_ending = False  # what has not been taken up will not be
        self.delayed_until_ms = 0  # do not read the broker: a response waits here; 0: none does
        self.now_ns = 0  # the shell's clock at its last call, where milliseconds are too coarse
        self.answered = -1  # the API of the response that began last; the shell takes it and puts -1
        self._in_flight: list[
            InFlight
        ] = []  # mostly empty or one long, where a list is smaller than a deque and as fast
        self._most_in_flight = MAX_IN_FLIGHT  # 0: a login's request is unanswered
        self._fetches_in_flight = 0
        self._call: Call | None = None  # where there is a queue in front of the broker
        self._is_refused = False  # by it: the request at hand
        self._come_bytes = 0  # of that, and of what is behind it
        self._since_ns = 0  # the broker has been at work on the oldest of them
        self._login: Login | None = None
        self._habit: Habit | None = None
        self._follower: Follower | None = None  # where the client is one, and there are limits on replication
        self._mutations: Mutations | None = None  # where the client is limited in them
        self._exchange: Exchange | None = None  # of these two, who awaits an answer
        self._held_until_ms = 0  # a request waits here for who decides on it; 0: it does not
        self._question = b""  # of who has to know something first; to be passed on
        # What was read and could not be passed on yet begins at ..._at in ..._data.
        self._client_data = b""
        self._client_at = 0
        self._request_left = 0  # bytes of a request's body that are still to pass
        self._acks0: tuple[Bucket, int, Sent | None] | None = None  # to be charged when that body has passed
        self._broker_data = b""
        self._broker_at = 0
        self._response_left = 0
        self._reads_responses = listening.addresses is not None  # whatever they answer
        self._answer: Answer | None = None  # begun and charged, and more of it is needed
        self._hidden: HiddenEndpoints | None = None  # of a response that streams
        self._parts: list[bytes] = []  # of one that is to be trimmed, and is not whole
        self._parts_left = 0  # bytes that it lacks

    # -- what the shell asks --

    @property
    def muted_until_ms(self) -> int:
        """Until when the client is muted; in the past: it is not."""
        return 0 if self.is_ending else self.account.muted_until_ms

    @property
    def follower(self) -> Follower | None:
        """What a follower's fetches have seen, where limits on replication hold for this connection."""
        return self._follower

    @property
    def wake_at_ms(self) -> int:
        """When to call ``handle_timer``; 0 or in the past: no need to, what waits will be freed by an answer."""
        if self.delayed_until_ms:
            return self.delayed_until_ms
        return max(self.muted_until_ms, self._held_until_ms) if self.is_blocked else 0

    @property
    def is_idle(self) -> bool:
        """Whether everything that can be answered has been, and nothing waits to be passed on."""
        return self.has_answered and not self._request_left

    @property
    def has_answered(self) -> bool:
        """Whether everything has been answered that was taken up, or is to be."""
        waits = self.is_blocked and not self.is_ending
        is_awaited = self._in_flight or not self._most_in_flight
        return not (is_awaited or waits or self._response_left or self._broker_data or self._parts_left)

    @property
    def is_owed(self) -> bool:
        """Whether the client waits for us or the broker; not so who stopped in the middle of his only request."""
        unfinished = 1 if self._request_left and self._acks0 is None else 0
        is_awaited = len(self._in_flight) > unfinished or not self._most_in_flight
        return is_awaited or self.is_blocked or bool(self._response_left or self._broker_data or self._parts_left)

    @property
    def is_logging_in(self) -> bool:
        """Whether the client has begun a login and the broker has not accepted it yet."""
        return self._login is not None and self._login.principal is None

    @property
    def awaits_no_answers(self) -> bool:
        """Whether the client produces with acks=0: it would never know what did not arrive."""
        return self._habit is not None and self._habit.api_key == PRODUCE and not self._habit.acks

    @property
    def held_bytes(self) -> int:
        """How much was read and could not be passed on yet."""
        parts_bytes = sum(map(len, self._parts))
        return len(self._client_data) + len(self._broker_data) + parts_bytes + sum(map(len, self.to_broker))

    # -- what the shell tells --

    def receive_from_client(self, data: bytes, *, now_ms: int) -> None:
        """Take what the client sent.

        Raises:
            ProtocolError: this is not Kafka's protocol; write ``to_broker`` and close.
        """
        left = self._request_left
        if left:
            if len(data) < left:
                self._request_left = left - len(data)
                self.to_broker.append(data)
                return
            self._request_left = 0
            self.to_broker.append(data[:left])
            self._end_request(now_ms)
            self._pass_requests(data, left, now_ms)
        elif self._client_data:
            self._pass_requests(self._client_data[self._client_at :] + data, 0, now_ms)
        else:
            self._pass_requests(data, 0, now_ms)

    def receive_from_broker(self, data: bytes, *, now_ms: int) -> None:
        """Take what the broker sent.

        Raises:
            ProtocolError: this answers nothing that was asked; close.
        """
        if self._parts_left:
            self._parts.append(data)
            self._parts_left -= len(data)
            if self._parts_left > 0:
                return
            data = b"".join(self._parts)
            self._parts = []
            self._parts_left = 0
        elif self._broker_data:
            data = self._broker_data[self._broker_at :] + data
            if self.delayed_until_ms:
                self._broker_data = data
                self._broker_at = 0
                return
        elif self._response_left > len(data):
            self._response_left -= len(data)
            if self._hidden is not None:
                data = self._hidden.feed(data)
            self.to_client.append(data)
            return
        self._pass_responses(data, 0, now_ms)

    def handle_timer(self, *, now_ms: int) -> None:
        """Go on with what has waited long enough."""
        if self.delayed_until_ms and now_ms >= self.delayed_until_ms:
            self.delayed_until_ms = 0
            self._pass_responses(self._broker_data, self._broker_at, now_ms)
        elif self.is_blocked:
            self._held_until_ms = 0
            self._pass_requests(self._client_data, self._client_at, now_ms)

    def resume(self, *, now_ms: int) -> None:
        """Go on with what waited for its turn. Raises as ``handle_timer``."""
        if self.is_blocked:
            self._pass_requests(self._client_data, self._client_at, now_ms)
        if self._call is not None and not self._in_flight and not self._request_left:
            self._call.leave_unused(self.now_ns // 1_000)  # it waits for something else now, or is to end

    def release(self, *, now_ms: int) -> None:
        """Go on with what waits for its throttle time, and let nothing wait from now on. Raises as ``handle_timer``."""
        self.account.release()
        if self._follower is not None:
            self._follower.release()
        if self.is_ending:
            self.take_no_more()
        if self._answer is not None:
            self._answer = (*self._answer[:4], False)  # charged already; the client is told, and not held up
        self.delayed_until_ms = min(self.delayed_until_ms, now_ms)
        self.handle_timer(now_ms=now_ms)

    def take_no_more(self) -> None:
        """Take up no request that has not begun; those that have are passed on and answered."""
        self.is_ending = True
        self.account.muted_until_ms = _FOR_EVER

    def restart_service(self, now_ns: int) -> None:
        """Take it that the broker has what was asked only now: it had to be dialled first."""
        self._since_ns = now_ns

    def receive_end_from_client(self) -> None:
        """Take it that the client sends no more: a request that it cut off will not be answered."""
        if self._request_left:
            self._request_left = 0
            # Behind it nothing was taken up, and what came before it is answered first.
            if self._acks0 is None and self._in_flight:
                _, api_key, _, size_bytes, bucket, sent = self._in_flight.pop()
                if bucket is not None and api_key == PRODUCE:
                    bucket.in_flight -= size_bytes
                if sent is not None:
                    sent.forget()
                    if not self._in_flight:
                        self._leave_queue()
            if self._acks0 is not None and self._acks0[2] is not None:
                self._acks0[2].forget()
            self._acks0 = None

    def close(self, *, now_ms: int, has_passed: bool) -> None:
        """Settle what will not be answered any more.

        Args:
            now_ms: when the connection ended.
            has_passed: whether it was not the broker that left, and it has got all that was passed on. Kafka charges a
                Produce whose client did not wait for the answer, too; else who resets his connections never pays.
        """
        for index, (_, api_key, _, size_bytes, bucket, sent) in enumerate(self._in_flight):
            is_whole = not self._request_left or index < len(self._in_flight) - 1 or self._acks0 is not None
            is_charged = has_passed and is_whole
            if bucket is not None and api_key == PRODUCE:
                bucket.in_flight -= size_bytes
                if is_charged:
                    self._silence(bucket, bucket.charge(size_bytes, now_ms=now_ms), now_ms)
            if sent is not None:
                elapsed_ns = 0 if index else self.now_ns - self._since_ns
                for payer, wait_ms in sent.settle(elapsed_ns, 0, now_ms=now_ms) if is_charged else sent.forget():
                    self._silence(payer, wait_ms, now_ms)
        self._in_flight.clear()
        if self._follower is not None:
            self._follower.close()
        self._leave_queue()
        if self._login is not None and self._login.is_awaited:
            self.account.listening.counters.login(self._login.mechanism, FAILED)
        self.account.close(now_ms=now_ms)

    def _leave_queue(self) -> None:
        if self._call is not None:
            self._call.leave(self.now_ns // 1_000)

    def _silence(self, bucket: Bucket, wait_ms: int, now_ms: int) -> None:
        if wait_ms > 0 and not self.account.observes(bucket):
            bucket.silence(wait_ms, now_ms=now_ms)

    # -- requests --

    def _pass_requests(self, data: bytes, start: int, now_ms: int) -> None:  # noqa: C901 - a loop that each request pays
        """Pass on the requests that have come, from ``start`` on, and may pass; keep the rest."""
        position = start
        end = len(data)
        account = self.account
        listening = account.listening
        max_frame_bytes = 4 + listening.policy.max_frame_size_bytes
        answer = self._answer
        is_held = answer is not None and answer[4]  # an answer is to be delayed as soon as it is there
        self.is_blocked = False
        try:
            while position < end:
                if (
                    now_ms < account.muted_until_ms
                    or is_held
                    or self.delayed_until_ms
                    or len(self._in_flight) >= self._most_in_flight
                ):
                    self.is_blocked = True
                    break
                if self._call is not None:
                    self._come_bytes = end - position
                habit = self._habit
                if (
                    habit is not None
                    and data.startswith(habit.front, position + 12)
                    and data.startswith(habit.api, position + 4)
                    and habit.generation == listening.quotas.generation
                    and habit.front_end <= 4 + (head := _SIZE_AND_ID(data, position))[0] <= max_frame_bytes
                ):
                    size_bytes, correlation_id = head
                    if habit.api_key == PRODUCE:
                        change = self._take_produce(habit, size_bytes, correlation_id, now_ms)
                    else:
                        change = self._take_fetch(habit, data, position, size_bytes, correlation_id, now_ms)
                    if change is None:
                        change = self._refuse(data, position, size_bytes, now_ms) if self._is_refused else None
                        if change is None:
                            break
                    listening.counters.frames[habit.api_key] += 1
                else:
                    passes = self._admit(data, position, now_ms)
                    if passes is None:
                        break
                    size_bytes, change = passes
                if change:
                    begin, until, replacement = change
                    if replacement:
                        self.to_broker += (data[start:begin], replacement)
                    elif begin > start:  # of what was answered here nothing passes
                        self.to_broker.append(data[start:begin])
                    start = until
                position += 4 + size_bytes
                if position > end:
                    self._request_left = position - end
                    position = end
                elif self._acks0 is not None:
                    self._end_request(now_ms)
        finally:
            if position > start:
                self.to_broker.append(data[start:position])  # all of it: no copy is made
            if self._question:
                self.to_broker.append(self._question)
                self._question = b""
            if position < end:
                # A tail of a few bytes must not keep a read of 256 KiB alive, nor may each request that passes copy it.
                is_tail = position > end - position
                self._client_data = data[position:] if is_tail else data
                self._client_at = 0 if is_tail else position
            elif self._client_data:
                self._client_data = b""
        if position < end and not self.is_blocked and end - position > self._max_waiting_bytes():
            raise HeadTooLong(f"the head of a request has not ended after {end - position} bytes")

    def _admit(self, data: bytes, position: int, now_ms: int) -> tuple[int, Change] | None:
        """Say how long the next request is and with which change it passes, and remember it; None: not now."""
        listening = self.account.listening
        self._follow_line(listening.line, len(data) - position)
        login = self._login
        if login is not None and login.is_raw:
            is_request = not login.is_readable and sasl.is_request(data, position)
            if not is_request:
                return None if is_request is None else self._admit_token(data, position, login)
            self._conclude(login, login.leave_raw())
        elif login is not None and login.is_refused and not (is_handshake := sasl.is_handshake(data, position)):
            if is_handshake is None:
                return None
            raise TokenAfterRefusal("it sent on behind a SaslHandshake v0 that the broker has refused")
        head = read_request_head(data, position, listening.policy.max_frame_size_bytes)
        if head is None:
            return None
        size_bytes, api_key, api_version, _, client_id, _ = head
        account = self.account
        if not account.is_known and api_key not in _OF_NOBODY and not account.count(client_id):
            self.is_blocked = True
            self.take_no_more()
            return None
        change = self._admit_by_api(data, position, head, now_ms)
        if change is None and self._is_refused:
            change = self._refuse(data, position, size_bytes, now_ms)
        if change is None:
            return None
        listening.counters.frame(api_key, api_version)
        return size_bytes, change

    def _admit_by_api(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Change | None:
        api_key = head.api_key
        if api_key == PRODUCE:
            return self._admit_produce(data, position, head, now_ms)
        if api_key == FETCH:
            return self._admit_fetch(data, position, head, now_ms)
        if api_key in LOGIN_APIS:
            return self._admit_login(data, position, head)
        if api_key in FIRST_STRICT and self.account.listening.quotas.limits(QuotaKind.MUTATION):
            return self._admit_mutation(data, position, head, now_ms)
        return self._admit_other(head, now_ms)

    def _follow_line(self, line: Line | None, come_bytes: int) -> None:
        """Take a place in the queue in front of the broker, where there is one now."""
        self._come_bytes = come_bytes
        if self._call is not None and self._call.line is not line and not self._in_flight:
            self._leave_queue()
            self._call = None
        if self._call is None and line is not None:
            self._call = Call(line, self.owner)

    def _admit_other(self, head: RequestHead, now_ms: int) -> Change | None:
        size_bytes, api_key, api_version, correlation_id, client_id, _ = head
        sent = None
        payers = NOBODY if is_exempt(api_key) else self.account.payers(client_id, now_ms)
        if payers is not NOBODY or self._call is not None:
            asked, identity = Asked(api_key, api_version, size_bytes), self._identity(client_id)
            if self._waits(now_ms) or not self._may_ask(payers, asked, identity, now_ms):
                return None
            sent = self._begin(payers, asked, identity)
        self._in_flight.append((correlation_id, api_key, api_version, size_bytes, None, sent))
        return NOTHING

    def _admit_produce(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Change | None:
        size_bytes, _, api_version, correlation_id, client_id, body = head
        acks = produce.read_acks(data, body, api_version, end=position + 4 + size_bytes)
        if acks is None:
            return None
        bucket = self.account.produce_bucket(client_id, now_ms)
        if self._waits(now_ms):
            return None
        front_end = produce.end_of_plain_acks(data, body, api_version)
        habit = self._habit_of(data, position, head, front_end, acks, bucket, now_ms=now_ms)
        return self._take_produce(habit, size_bytes, correlation_id, now_ms)

    def _admit_fetch(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Change | None:
        size_bytes, _, api_version, correlation_id, client_id, body = head
        account = self.account
        believes = account.believes_replicas()
        if believes:
            frame_end = position + 4 + size_bytes
            if frame_end > len(data):
                return None
            replica_id = fetch.read_replica_id(data, body, frame_end, api_version)
            if replica_id >= 0:
                return self._admit_replica(data, position, head, replica_id, now_ms)
        bucket = account.fetch_bucket(client_id, now_ms)
        if self._waits(now_ms):
            return None
        # Where replicas are believed, each fetch has to be read for what it says of itself.
        habit = self._habit_of(data, position, head, None if believes else body, 0, bucket, now_ms=now_ms)
        return self._take_fetch(habit, data, position, size_bytes, correlation_id, now_ms, body=body)

    def _admit_replica(
        self, data: bytes, position: int, head: RequestHead, replica_id: int, now_ms: int
    ) -> Change | None:
        """Pass on a follower's fetch, which is whole: as it came, or with what may flow of it; or answer it here."""
        size_bytes, _, api_version, correlation_id, _, body = head
        self._held_until_ms = 0
        follower, leader = self._follower, self.account.listening.leader
        if follower is None and leader is not None and leader.throttle.replication is not None:
            follower = self._follower = Follower(leader)
        if follower is not None and follower.is_asking:
            self.is_blocked = True
            return None
        if follower is None or not follower.is_throttled(replica_id, api_version, now_ms=now_ms):
            self._in_flight.append((correlation_id, FETCH, api_version, size_bytes, None, None))
            return NOTHING
        if not self._is_alone():
            return None
        decision = follower.take(data, position, body, api_version, correlation_id, now_ms=now_ms)
        return self._do(decision, follower, position, head, None)

    def _admit_mutation(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Change | None:
        """Pass on a request that makes, grows or deletes topics: as it came, or with what may be done of it."""
        size_bytes, api_key, api_version, _, client_id, _ = head
        frame_end = position + 4 + size_bytes
        bucket = self.account.mutation_bucket(client_id, now_ms)
        if not bucket.is_limited:
            return self._admit_other(head, now_ms)
        if not is_mutation(api_key, api_version):
            raise UnknownVersion(
                f"version {api_version} of {API_NAMES[api_key]} is not known here, nor was it announced"
            )
        if size_bytes > MAX_REQUEST_BYTES:
            raise FrameTooLarge(f"a request of {size_bytes} bytes about topics, which are limited, is not held")
        mutations = self._mutations = self._mutations or Mutations(self.account)
        if frame_end > len(data):
            return None
        payers = self.account.payers(client_id, now_ms)
        asked, identity = Asked(api_key, api_version, size_bytes), self._identity(client_id)
        if self._waits(now_ms) or not self._is_alone() or not self._may_ask(payers, asked, identity, now_ms):
            return None
        frame = data[position:frame_end]
        decision = mutations.take(frame, head._replace(body=head.body - position), bucket, now_ms=now_ms)
        sent = None
        if isinstance(decision, Forward):
            sent = self._begin(payers, asked, identity)
        return self._do(decision, mutations, position, head, sent)

    def _is_alone(self) -> bool:
        """Whether nothing is under way; else an answer of ours would overtake others, and the request waits."""
        is_alone = not (self._in_flight or self._response_left or self._broker_data)
        self.is_blocked = not is_alone
        return is_alone

    def _do(
        self, decision: Decision, exchange: Exchange, position: int, head: RequestHead, sent: Sent | None
    ) -> Change | None:
        """Do with a request, which is whole, what was decided on it."""
        size_bytes, api_key, api_version, correlation_id, _, _ = head
        frame_end = position + 4 + size_bytes
        if isinstance(decision, Hold):
            self._held_until_ms = decision.until_ms
            self.is_blocked = True
            return None
        if isinstance(decision, Answered):
            self.to_client.append(decision.frame)
            self._leave_queue()
            return position, frame_end, b""
        self._exchange = exchange
        if isinstance(decision, Ask):
            self._question = decision.frame
            self._in_flight.append((correlation_id, _EXCHANGED, api_version, 0, None, None))
            self.is_blocked = True
            return None
        api_key = _EXCHANGED if decision.is_answer_read else api_key
        self._in_flight.append((correlation_id, api_key, api_version, size_bytes, None, sent))
        return (position, frame_end, decision.frame) if decision.frame else NOTHING

    def _waits(self, now_ms: int) -> bool:
        """Whether the bucket that was just looked up brought a wait with it, which another connection was given."""
        if now_ms >= self.account.muted_until_ms:
            return False
        self._habit = None
        self.is_blocked = True
        return True

    def _habit_of(
        self,
        data: bytes,
        position: int,
        head: RequestHead,
        front_end: int | None,
        acks: int,
        bucket: Bucket,
        *,
        now_ms: int,
    ) -> Habit:
        """Return what this request shares with the next; keep it for them if it may be compared and is well known.

        A habit is of the client-id whose buckets are held, else they could make room for others and be charged still.
        """
        habit = Habit(
            api=data[position + 4 : position + 8],
            front=data[position + 12 : front_end] if front_end else b"",
            api_key=head.api_key,
            api_version=head.api_version,
            acks=acks,
            bucket=bucket,
            payers=(payers := self.account.payers(head.client_id, now_ms)),
            identity=self._identity(head.client_id),
            is_plain=payers is NOBODY and self._call is None,
            generation=self.account.listening.quotas.generation,
            front_end=(front_end or 0) - position,
        )
        is_kept = front_end and habit.front_end <= _MAX_HABIT_BYTES
        if is_kept and head.api_version <= HIGHEST_VERSION[head.api_key]:
            self._habit = habit
        elif self._habit is not None and not self.account.holds(self._habit.bucket):
            self._habit = None
        if self.account.left:
            self.account.let_go(set(self._charged()), now_ms=now_ms)
        return habit

    def _charged(self) -> Iterator[Bucket | None]:
        """Return the buckets that are still to be charged."""
        for flight in self._in_flight:
            yield flight[4]
            if flight[5] is not None:
                yield from flight[5].payers

    def _take_produce(self, habit: Habit, size_bytes: int, correlation_id: int, now_ms: int) -> Change | None:
        """Take up a Produce request, unless it would go over the quota while others are unanswered."""
        bucket = habit.bucket
        if self._in_flight and not bucket.has_room(size_bytes, now_ms=now_ms) and not self.account.observes(bucket):
            self.is_blocked = True
            return None
        sent = None
        if not habit.is_plain:
            asked = Asked(PRODUCE, habit.api_version, size_bytes, acks=habit.acks)
            if not self._may_ask(habit.payers, asked, habit.identity, now_ms):
                return None
            sent = self._begin(habit.payers, asked, habit.identity)
        if habit.acks:
            bucket.in_flight += size_bytes
            self._in_flight.append((correlation_id, PRODUCE, habit.api_version, size_bytes, bucket, sent))
        else:
            self._acks0 = (bucket, size_bytes, sent)
        return NOTHING

    def _identity(self, client_id: bytes) -> str | None:
        """Return whose turn it has to be for a request of this client-id; None: there is no queue."""
        if self._call is None:
            return None
        name = bounded(client_id.decode("utf-8", "backslashreplace"))
        return self._call.line.identity(self.account.principal, name, self.peer_host)

    def _may_ask(self, payers: Payers, asked: Asked, identity: str | None, now_ms: int) -> bool:
        """Whether a request may pass that is more than its bytes; else it waits here, or is refused."""
        is_alone = not self._in_flight
        may = has_room(self.account, payers, is_alone=is_alone, now_ms=now_ms)
        if may and self._call is not None and identity is not None:
            is_whole = 4 + asked.size_bytes <= self._come_bytes
            has_answer = asked.api_key in REFUSABLE and (asked.api_key != PRODUCE or asked.acks != 0)
            can_refuse = is_whole and is_alone and has_answer and asked.size_bytes <= MAX_REFUSED_BYTES
            turn = self._call.ask(
                asked, identity, is_alone=is_alone, may_refuse=can_refuse, now_us=self.now_ns // 1_000
            )
            may = turn is Turn.PASSES
            self._is_refused = turn is Turn.REFUSED
            if may:
                self._call.passed(asked, is_whole=is_whole, now_us=self.now_ns // 1_000)
        self.is_blocked = not may and not self._is_refused
        return may

    def _begin(self, payers: Payers, asked: Asked, identity: str | None) -> Sent:
        if not self._in_flight:
            self._since_ns = self.now_ns
        return begin(payers, asked, identity)

    def _refuse(self, data: bytes, position: int, size_bytes: int, now_ms: int) -> Change | None:
        """Answer a request that the queue has refused, and let its client be silent for a while."""
        self._is_refused = False
        frame_end = position + 4 + size_bytes
        answer = refuse(data[position:frame_end], throttle_time_ms=REFUSED_FOR_MS)
        self.account.mute(REFUSED_FOR_MS, now_ms=now_ms)
        if answer is None:
            self.is_blocked = True  # it asks again when that is over
            return None
        self.to_client.append(answer)
        return position, frame_end, b""

    def _take_fetch(
        self,
        habit: Habit,
        data: bytes,
        position: int,
        size_bytes: int,
        correlation_id: int,
        now_ms: int,
        *,
        body: int = 0,
    ) -> Change | None:
        """Take up a Fetch, capped to its quota; under one, one at a time: what it brings only its answer tells."""
        bucket = habit.bucket
        change, sent = NOTHING, None
        is_capped = bucket.is_limited and not self.account.observes(bucket)
        if is_capped or not habit.is_plain:
            if is_capped and self._fetches_in_flight:
                self.is_blocked = True
                return None
            at = body or position + habit.front_end
            limits = fetch.read_limits(data, at, habit.api_version, end=position + 4 + size_bytes)
            if limits is None:
                return None
            if not habit.is_plain:
                asked = Asked(FETCH, habit.api_version, size_bytes, limits.max_wait_ms, limits.min_bytes)
                if not self._may_ask(habit.payers, asked, habit.identity, now_ms):
                    return None
                sent = self._begin(habit.payers, asked, habit.identity)
            if is_capped:
                change = capped_fetch(limits, bucket.max_fetch_bytes)
        self._fetches_in_flight += 1
        self._in_flight.append((correlation_id, FETCH, habit.api_version, size_bytes, bucket, sent))
        return change

    def _end_request(self, now_ms: int) -> None:
        """Go on behind a request that has now passed: charge it if it will not be answered."""
        if self._acks0 is not None:
            bucket, size_bytes, sent = self._acks0
            self._acks0 = None
            charges = [(bucket, bucket.charge(size_bytes, now_ms=now_ms))]
            if sent is not None:
                charges += sent.pass_unanswered(now_ms=now_ms)
                if self._call is not None and not self._in_flight:
                    self._call.end(is_sample=False, now_us=self.now_ns // 1_000)
            found = longest(self.account, charges, now_ms=now_ms)
            if found is not None:
                self.account.slow_down(*found, now_ms=now_ms, has_answer=False)
        elif self._in_flight:
            sent = self._in_flight[-1][5]
            if self._call is not None and sent is not None:
                self._call.passed(sent.asked, is_whole=True, now_us=self.now_ns // 1_000)
            if len(self._in_flight) == 1:
                self._since_ns = self.now_ns

    def _max_waiting_bytes(self) -> int:
        """Return how much may be kept of a request whose head is not whole.

        A follower's fetch is read to its end, and so is a login.
        """
        if self.account.believes_replicas() or self._mutations is not None:
            return MAX_REPLICA_FETCH_BYTES
        return 2 * MAX_HEAD_BYTES if self._login is None else 4 + sasl.MAX_LOGIN_BYTES

    # -- logins --

    def _admit_login(self, data: bytes, position: int, head: RequestHead) -> Change | None:
        """Read a SaslHandshake or SaslAuthenticate request, which must be whole, and let nothing pass behind it."""
        size_bytes, api_key, api_version, correlation_id, _, body = head
        sasl.check_login_size(size_bytes)
        login = self._login = self._login or Login()
        frame_end = position + 4 + size_bytes
        if frame_end > len(data):
            return None
        claim = self.account.listening.policy.oauthbearer_claim
        login.ask(api_key, api_version, memoryview(data)[body:frame_end], claim=claim)
        self._in_flight.append((correlation_id, api_key, api_version, size_bytes, None, None))
        self._await_login()
        return NOTHING

    def _admit_token(self, data: bytes, position: int, login: Login) -> tuple[int, Change] | None:
        """Read a bare token, likewise; nobody knows whether one that is not understood will be answered."""
        size_bytes = sasl.read_token_size(data, position)
        if size_bytes is None or position + 4 + size_bytes > len(data):
            return None
        token = data[position + 4 : position + 4 + size_bytes]
        login.ask_raw(token, claim=self.account.listening.policy.oauthbearer_claim)
        if login.is_readable:
            self._await_login()
        return size_bytes, NOTHING

    def _await_login(self) -> None:
        self._most_in_flight = 0
        self._reads_responses = True
        self._habit = None  # what comes next is a token, or somebody else's

    def _conclude(self, login: Login, verdict: Verdict) -> None:
        """Go on after the broker's answer, as somebody if it said so."""
        self._most_in_flight = MAX_IN_FLIGHT
        self._reads_responses = login.is_raw or self.account.listening.addresses is not None
        if verdict is not Verdict.GOING_ON:
            self.account.listening.counters.login(login.mechanism, verdict.value)
        if verdict in (Verdict.ACCEPTED, Verdict.UNKNOWN) and login.principal is not None:
            self.account.log_in(login.principal)

    def _take_login_answer(self, data: bytes, position: int, answer: Answer) -> Change | None:
        """Read the answer to a login's request, which passes as it is; None if more bytes are needed."""
        api_key, api_version, frame_bytes, _, _ = answer
        login = self._login
        if login is not None:
            sasl.check_login_size(frame_bytes - 4)
            if position + frame_bytes > len(data):
                return None
            frame = memoryview(data)[position : position + frame_bytes]
            if api_key == _TOKEN:
                self._conclude(login, login.answer_raw(bytes(frame[4:])))
            else:
                self._conclude(login, login.answer(api_key, api_version, frame[_RESPONSE_HEAD_BYTES:]))
        return NOTHING

    def _begin_token(self, data: bytes, position: int) -> Answer | None:
        """Find out what a response is that answers no request, or is not there: a bare token, or nothing at all."""
        if self._login is not None and self._login.is_raw:
            token_bytes = sasl.read_token_size(data, position)
            return None if token_bytes is None else (_TOKEN, 0, 4 + token_bytes, 0, False)
        if position + _RESPONSE_HEAD_BYTES > len(data):
            return None
        correlation_id = _RESPONSE_HEAD(data, position)[1]
        raise UnexpectedResponse(f"a response with correlation_id {correlation_id} answers no request")

    # -- responses --

    def _pass_responses(self, data: bytes, start: int, now_ms: int) -> None:  # noqa: C901 - likewise
        """Pass on the responses that have come, from ``start`` on, and may pass; keep the rest."""
        end = len(data)
        position = start + self._response_left
        self._response_left = 0
        if self._hidden is not None:
            start = self._pass_hidden(data, start, position)
        while position < end:
            answer = self._answer
            if answer is None:
                if position + _RESPONSE_HEAD_BYTES > end or not self._in_flight:
                    answer = self._begin_token(data, position)
                    if answer is None:
                        break
                else:
                    answer = self._begin_answer(data, position, now_ms)
            api_key, api_version, frame_bytes, wait_ms, is_delayed = answer
            if (
                wait_ms
                or api_key in _CHANGED
                or (self._reads_responses and not names_nobody(data, position, frame_bytes, api_key, api_version))
            ):
                change = self._response_change(data, position, answer, now_ms)
                if change is None:
                    self._answer = answer
                    break
                self._answer = None
                begin, until, replacement = change or (position, position, b"")
                if is_delayed or self._hidden is not None:
                    self._response_left = frame_bytes + len(replacement) - (until - begin)
                    if replacement:
                        data = data[:begin] + replacement + data[until:]
                    if not is_delayed:
                        self.to_client.append(data[start:position])
                        self._pass_responses(data, position, now_ms)
                        return
                    self.delayed_until_ms = now_ms + wait_ms
                    break
                if replacement:
                    self.to_client += (data[start:begin], replacement)
                    start = until
                elif until > begin:  # it answers a question of ours
                    self.to_client.append(data[start:begin])
                    start = until
            position += frame_bytes
        if position > end:
            self._response_left = position - end
            position = end
        if position > start:
            self.to_client.append(data[start:position])
        if position < end and self._answer is not None and self._answer[0] == _EXCHANGED:
            self._parts = [data[position:]]  # joined once, when it is whole: it may have many MB
            self._parts_left = self._answer[2] - len(self._parts[0])
            self._broker_data = b""
        elif position < end:
            self._broker_data = data
            self._broker_at = position
        elif self._broker_data:
            self._broker_data = b""
        if self.is_blocked:
            self._pass_requests(self._client_data, self._client_at, now_ms)

    def _response_change(self, data: bytes, position: int, answer: Answer, now_ms: int) -> Change | None:
        """Return what to change in the response at ``position``; None if more bytes are needed to tell."""
        api_key, api_version, frame_bytes, wait_ms, is_delayed = answer
        if api_key == _EXCHANGED:
            if frame_bytes > MAX_EXCHANGED_BYTES:
                raise FrameTooLarge(f"an answer of {frame_bytes} bytes, which is to be read whole, is not held")
            return self._exchanged(data, position, frame_bytes, api_version, now_ms)
        if self._reads_responses and api_key in _LOGIN_ANSWERS:
            return self._take_login_answer(data, position, answer)
        ceilings = CEILINGS if self.account.listening.addresses is None else READABLE
        change: Change = NOTHING
        if api_key == API_VERSIONS and self.account.listening.quotas.limits(QuotaKind.MUTATION):
            self._learn_versions(data, position, answer)
        if wait_ms or api_key == API_VERSIONS:
            throttle = response_change(data, position, frame_bytes, api_key, api_version, wait_ms, ceilings)
            if throttle is None:
                return None
            change = throttle
        told = self._told(data, position, answer, change)
        if told is not None and change and wait_ms and not is_delayed and api_key != API_VERSIONS:
            # Where the broker's own throttle time is the larger, it is the one that the client was told.
            self.account.mute(int.from_bytes(change[2]), now_ms=now_ms)
        return told

    def _told(self, data: bytes, position: int, answer: Answer, change: Change) -> Change | None:
        """Return ``change`` with what a response says of brokers changed as well, where clients come to this proxy."""
        api_key, api_version, frame_bytes, _, _ = answer
        addresses = self.account.listening.addresses
        if addresses is None or api_key not in ADDRESSED:
            return change
        if api_key not in MOVED:
            front = addresses.change(data, position, api_key, api_version)
            return None if front is None else _throttled(front, position, change)
        come_bytes = len(data) - position
        if not may_name_leaders(api_key, api_version):
            return change
        if streams(api_key, frame_bytes, come_bytes):
            self._hidden = HiddenEndpoints(api_key, api_version)
            return change
        if come_bytes < frame_bytes:
            return None
        return addresses.moved(data, position, frame_bytes, api_key, api_version, change)

    def _exchanged(self, data: bytes, position: int, frame_bytes: int, api_version: int, now_ms: int) -> Change | None:
        """Replace an answer by what who awaits it makes of it; None if it is not whole."""
        if position + frame_bytes > len(data) or self._exchange is None:
            return None
        frame = self._exchange.answer(data, position, frame_bytes, now_ms=now_ms)
        addresses = self.account.listening.addresses
        if addresses is not None and self._exchange is self._follower and may_name_leaders(FETCH, api_version):
            told = addresses.moved(frame, 0, len(frame), FETCH, api_version, NOTHING)
            if told:
                frame = frame[: told[0]] + told[2] + frame[told[1] :]
        return position, position + frame_bytes, frame

    def _learn_versions(self, data: bytes, position: int, answer: Answer) -> None:
        """See whether the broker could be asked for topics by their ids."""
        _, api_version, frame_bytes, _, _ = answer
        if position + frame_bytes <= len(data):
            frame = data[position : position + frame_bytes]
            with suppress(ProtocolError):  # an answer that is none passes as it is
                newest = api_versions.highest(frame, api_version, ApiKey.METADATA)
                self.account.listening.finds_ids = newest is not None and newest >= FIRST_TOPIC_ID

    def _pass_hidden(self, data: bytes, start: int, position: int) -> int:
        """Pass on what has come of a response that streams, up to its end at ``position``; return up to where."""
        until = min(position, len(data))
        if self._hidden is not None:
            self.to_client.append(self._hidden.feed(data[start:until]))
            if until == position:
                self._hidden.end()
                self._hidden = None
        return until

    def _begin_answer(self, data: bytes, position: int, now_ms: int) -> Answer:
        """Find out what a response answers, and charge it.

        Produce is charged its request, Fetch its response, both when the response is ready.
        """
        response_bytes, correlation_id = _RESPONSE_HEAD(data, position)
        if response_bytes < 4:
            raise FrameTooSmall(f"a response of {response_bytes} bytes cannot hold a correlation_id")
        expected_id, api_key, api_version, size_bytes, bucket, sent = self._in_flight.pop(0)
        if expected_id != correlation_id:
            # A broker answers a connection's requests in their order. This one is still to be given back by close.
            self._in_flight.insert(0, (expected_id, api_key, api_version, size_bytes, bucket, sent))
            raise UnexpectedResponse(
                f"a response has correlation_id {correlation_id}, expected was {expected_id} "
                f"(api_key {api_key}, version {api_version})"
            )
        self.answered = api_key if self._exchange is None or api_key != _EXCHANGED else self._exchange.api_key
        wait_ms = 0
        if bucket is not None:
            if api_key == PRODUCE:
                bucket.in_flight -= size_bytes
                wait_ms = bucket.charge(size_bytes, now_ms=now_ms)
            else:
                self._fetches_in_flight -= 1
                wait_ms = bucket.charge(fetch.charged_bytes(response_bytes, api_version), now_ms=now_ms)
        if sent is not None:
            bucket, wait_ms = self._settle(sent, bucket, wait_ms, response_bytes, now_ms)
        if wait_ms > 0 and bucket is not None:
            wait_ms = self.account.slow_down(bucket, wait_ms, now_ms=now_ms)
            if wait_ms and self.account.enforcement(bucket) is Enforcement.DELAY:
                return api_key, api_version, 4 + response_bytes, wait_ms, True
        return api_key, api_version, 4 + response_bytes, wait_ms, False

    def _settle(
        self, sent: Sent, bucket: Bucket | None, wait_ms: int, response_bytes: int, now_ms: int
    ) -> tuple[Bucket | None, int]:
        """Charge what a request is charged beside its bytes; return whose wait counts, and how long it is."""
        elapsed_ns, self._since_ns = self.now_ns - self._since_ns, self.now_ns
        if self._call is not None and sent.identity is not None:
            self._call.answered(
                sent.asked,
                sent.identity,
                elapsed_us=elapsed_ns // 1_000,
                service_us=elapsed_ns // 1_000,
                response_bytes=response_bytes,
                is_last=not self._in_flight,
                now_us=self.now_ns // 1_000,
            )
        charges = list(sent.settle(elapsed_ns, response_bytes, now_ms=now_ms))
        if bucket is not None:
            charges.insert(0, (bucket, wait_ms))
        return longest(self.account, charges, now_ms=now_ms) or (None, 0)


def _throttled(front: Change, position: int, throttle: Change) -> Change:
    """Return the change of a response's front, with its throttle time, which lies in there, changed as well."""
    if not front or not throttle:
        return front
    begin, until, replacement = front
    at = throttle[0] - position
    return begin, until, replacement[:at] + throttle[2] + replacement[at + 4 :]
