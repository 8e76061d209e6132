"""What a session knows of its connection: what was read and could not pass, what awaits an answer, and who pays.

What happens to it is in ``requests`` and ``responses``.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol import fetch, share_fetch
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.node_endpoints import EndpointHider
from kafka_quota_proxy.protocol.partial_frame import PartialFrame
from kafka_quota_proxy.proxy.fair_queue.connection_queue import QueuedConnection
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.line import Place, Waiter
from kafka_quota_proxy.proxy.quota.request_time import NO_TIME, Service, ServiceTime
from kafka_quota_proxy.proxy.session.client_account import Account, Listening
from kafka_quota_proxy.proxy.session.quota_requests import QuotaRequests
from kafka_quota_proxy.proxy.session.replica.follower_fetch import Follower
from kafka_quota_proxy.proxy.session.request_charge import Sent
from kafka_quota_proxy.proxy.session.sasl_login import Login
from kafka_quota_proxy.proxy.session.topic_mutations import Mutations
from kafka_quota_proxy.proxy.session.whole_request import Exchange

PRODUCE: Final = int(ApiKey.PRODUCE)
FETCH: Final = int(ApiKey.FETCH)
SHARE_FETCH: Final = int(ApiKey.SHARE_FETCH)
API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
# A broker needs no such bound, for it reads one request at a time; ours keeps a client that never reads answers from
# filling memory with what is still expected. Java has 5 produce requests in flight at the most.
MAX_IN_FLIGHT: Final = 256
# Likewise: a request whose answer is read whole, by who has decided on it.
EXCHANGED: Final = -2
# A request that awaits its response: correlation_id, api_key, api_version, size_bytes, the bucket that is charged for
# its bytes (None: none is), what it is charged beside them, and what it has reserved in that bucket, in bytes. A plain
# tuple: there is one for every request that passes.
InFlight = tuple[int, int, int, int, Bucket | None, Sent | None, int]
# A response that has begun: api_key, api_version, length with size prefix, wait in ms, whether to hold it that long.
Answer = tuple[int, int, int, int, bool]
# A mute that does not end: no further request is taken up.
_FOR_EVER: Final = 1 << 62


def charged_bytes(response_bytes: int, api_key: int, api_version: int) -> int:
    """Return what a consumer's response of so many bytes, without its size prefix, is charged."""
    if api_key == SHARE_FETCH:
        return share_fetch.charged_bytes(response_bytes)
    return fetch.charged_bytes(response_bytes, api_version)


class Habit(NamedTuple):
    """What a client's Produce requests, Fetches or ShareFetches have in common: the head but size and correlation_id.

    Reading a head takes longer than all that is decided on it, comparing it with the last one a fraction of that.
    """

    api: bytes  # api_key and api_version
    front: bytes  # from client_id on: of a Produce to the end of acks, of a Fetch to the body
    api_key: int
    api_version: int
    acks: int
    bucket: Bucket
    sent: Sent | None  # None: it is charged for its bytes and nothing else, and waits for nobody
    generation: int  # of the rules that gave the buckets
    front_end: int  # where ``front`` ends, from the frame's start


class State:
    """The state of one client connection."""

    __slots__ = (
        "_acks0",
        "_answer",
        "_broker_at",
        "_broker_data",
        "_broker_pieces",
        "_call",
        "_client_at",
        "_client_data",
        "_client_pieces",
        "_come_bytes",
        "_exchange",
        "_fetched_bytes",
        "_fetches_in_flight",
        "_follower",
        "_habit",
        "_held_until_ms",
        "_hidden",
        "_in_flight",
        "_is_client_full",
        "_is_in_line",
        "_is_metered",
        "_is_put_off",
        "_is_refused",
        "_is_sessionless",
        "_is_unrefusable",
        "_line_until_ms",
        "_login",
        "_most_in_flight",
        "_mutations",
        "_place",
        "_question",
        "_quota_requests",
        "_reads_responses",
        "_refuses_until_ms",
        "_request_left",
        "_response_left",
        "_service",
        "_waits_since_ms",
        "account",
        "answered",
        "delayed_until_ms",
        "has_waited",
        "is_blocked",
        "is_ending",
        "now_ns",
        "owner",
        "peer_host",
        "to_broker",
        "to_client",
    )

    def __init__(self, listening: Listening, owner: Waiter | None = None) -> None:
        self.account = Account(listening)
        self.owner = owner  # what is woken when a turn has come; it calls ``resume``
        self.peer_host = ""
        self.to_broker: list[bytes] = []
        self.to_client: list[bytes] = []
        self.is_blocked = False  # do not read the client: what it sent waits here
        self.has_waited = False  # a request has stood in the line of its bucket
        self.is_ending = False  # what has not been taken up will not be
        self.delayed_until_ms = 0  # do not read the broker: a response waits here; 0: none does
        self.now_ns = 0  # the shell's clock at its last call, where milliseconds are too coarse
        self.answered = -1  # the API of the response that began last; the shell takes it and puts -1
        self._in_flight: list[
            InFlight
        ] = []  # mostly empty or one long, where a list is smaller than a deque and as fast
        self._most_in_flight = MAX_IN_FLIGHT  # 0: a login's request is unanswered, or one to change quotas
        self._fetches_in_flight = 0
        self._fetched_bytes = -1  # of the last fetch, what its answer was charged; -1: there was none
        self._is_put_off = False  # the fetch in flight is a ShareFetch that asks for nothing: its turn has not come
        self._is_sessionless = False  # its fetches are kept out of the broker's sessions
        self._place: Place | None = None  # in the line of the bucket that its next request charges
        self._is_in_line = False  # and that is what it waits for
        self._line_until_ms = 0  # when to look again; 0: when it is woken
        self._waits_since_ms = 0  # the fetch that waits there
        self._call: QueuedConnection | None = None  # where there is a queue in front of the broker
        self._is_metered = False  # it was charged for requests, or has waited for its turn
        self._is_refused = False  # by it: the request at hand
        self._is_unrefusable = False  # there turned out to be no answer for it
        self._is_client_full = False  # it does not take its answers, and the broker is not read
        self._refuses_until_ms = 0  # a Produce was refused, and until then each one behind it is
        self._come_bytes = 0  # of that, and of what is behind it
        self._service: Service | None = None  # of the oldest of them, where it is to be known
        self._login: Login | None = None
        self._habit: Habit | None = None
        self._follower: Follower | None = None  # where the client is one, and there are limits on replication
        self._mutations: Mutations | None = None  # where the client is limited in them
        self._quota_requests: QuotaRequests | None = None  # where he asks for them, or changes them
        self._exchange: Exchange | None = None  # of these two, who awaits an answer
        self._held_until_ms = 0  # a request waits here for who decides on it; 0: it does not
        self._question = b""  # of who has to know something first; to be passed on
        # What was read and could not be passed on yet begins at ..._at in ..._data. Where it waits for nothing but more
        # of its frame, ..._pieces has that and what comes behind it, until there is enough to look at it again.
        self._client_data = b""
        self._client_at = 0
        self._client_pieces: PartialFrame | None = None
        self._request_left = 0  # bytes of a request's body that are still to pass
        self._acks0: tuple[Bucket, int, Sent | None] | None = None  # to be charged when that body has passed
        self._broker_data = b""
        self._broker_at = 0
        self._broker_pieces: PartialFrame | None = None
        self._response_left = 0
        self._reads_responses = listening.addresses is not None  # whatever they answer
        self._answer: Answer | None = None  # begun and charged, and more of it is needed
        self._hidden: EndpointHider | None = None  # of a response that streams

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
        if not self.is_blocked:
            return 0
        return self._line_until_ms if self._is_in_line else max(self.muted_until_ms, self._held_until_ms)

    @property
    def is_idle(self) -> bool:
        """Whether everything that can be answered has been, and nothing waits to be passed on."""
        return self.has_answered and not self._request_left

    @property
    def has_answered(self) -> bool:
        """Whether everything has been answered that was taken up, or is to be."""
        waits = self.is_blocked and not self.is_ending
        is_awaited = self._in_flight or not self._most_in_flight
        return not (is_awaited or waits or self._is_being_answered or self._is_at_desk)

    @property
    def _is_at_desk(self) -> bool:
        """Whether a request about quotas has been taken up that is answered here; it may be in force by now."""
        return self._quota_requests is not None and self._quota_requests.is_pending

    @property
    def is_owed(self) -> bool:
        """Whether the client waits for us or the broker; not so who stopped in the middle of his only request."""
        unfinished = 1 if self._request_left and self._acks0 is None else 0
        is_awaited = len(self._in_flight) > unfinished or not self._most_in_flight
        return is_awaited or self.is_blocked or self._is_being_answered

    @property
    def _is_being_answered(self) -> bool:
        """Whether an answer has begun of which the client has not had all; its request is in flight no more."""
        return bool(self._response_left or self._broker_data)

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
        read_bytes = len(self._client_pieces or self._client_data) + len(self._broker_pieces or self._broker_data)
        return read_bytes + sum(map(len, self.to_broker))

    def _end_service(self) -> ServiceTime:
        """Take it that the broker has answered the oldest request, or never will; return how long it had it."""
        service, self._service = self._service, None
        if service is None:
            return NO_TIME
        return service[3].end(service, now_ns=self.now_ns)

    def _charge_turn(self, sent: Sent, service: ServiceTime = NO_TIME) -> None:
        """Charge whoever had a turn for a request that will have no answer."""
        if self._call is not None and sent.identity is not None:
            self._call.unanswered(sent.asked, sent.identity, service)

    def _leave_line(self) -> None:
        """Give back the place in a bucket's line, where there is one."""
        if self._place is not None:
            self._place.line.leave(self._place)
            self._place = None

    def _leave_queue(self) -> None:
        if self._call is not None:
            self._call.leave(self.now_ns // 1_000)

    def take_no_more(self) -> None:
        """Take up no request that has not begun; those that have are passed on and answered."""
        self.is_ending = True
        self._refuses_until_ms = 0
        self.account.muted_until_ms = _FOR_EVER
