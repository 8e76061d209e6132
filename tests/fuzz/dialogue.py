"""Fuzzes a whole session between a client and a broker.

The fuzzer's bytes decide the client's requests, the broker's responses, the passing of time, and which frames are cut
or damaged. The session must have these properties:

* It raises nothing but a ``ProtocolError``. After an error it settles its charges and is not used again.
* Each side receives exactly the frames of the other side. Only rewritten fields differ, and broker addresses, which
  grow to at most ``MAX_GROWTH`` times their length.
* The memory for buffered bytes is bounded, as ``check_memory`` says.
* A blocked client is released by a response, or by time and ``handle_timer``. No client waits for ever, and after
  ``release`` no client waits for a throttle time.
* After ``take_no_more``, requests that have begun are passed on to their end, and no other request begins.
* No request is charged twice to a bucket, and no bucket has a negative number of requests in flight.
* A broker's own address never reaches a client that must not see it, and no error quotes a password.
* The output does not depend on where the input is cut into pieces, as ``Twins`` checks.
"""

from contextlib import suppress
from struct import pack, unpack_from
from typing import Final

from kafka_quota_proxy.config.fair_call_queue import CostWeights, FairCallQueue, IdentityProvider
from kafka_quota_proxy.config.model import MAX_BUCKETS, Enforcement, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.protocol import fetch
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.header import MAX_HEAD_BYTES
from kafka_quota_proxy.protocol.sasl import MAX_LOGIN_BYTES
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit
from kafka_quota_proxy.proxy.fair_queue.connection_queue import HeldSlot, ListenerQueue
from kafka_quota_proxy.proxy.fair_queue.cost import CompletedRequest, WeightedTimeCost
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher
from kafka_quota_proxy.proxy.fair_queue.queue_stats import QueueStats
from kafka_quota_proxy.proxy.fair_queue.settings import identities
from kafka_quota_proxy.proxy.fair_queue.slot_timeouts import SlotTimeouts
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.address_rewrite import MOVED, Addresses
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext
from kafka_quota_proxy.proxy.session.frame_edits import MAX_HELD_RESPONSE_BYTES
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import MAX_REPLICA_FETCH_BYTES
from kafka_quota_proxy.proxy.session.in_flight import MAX_IN_FLIGHT
from tests.fuzz import seeds
from tests.fuzz.messages import (
    ENDLESS,
    MECHANISMS,
    PASSWORD,
    PRINCIPALS,
    WAITS_MS,
    ClientMessages,
    delays,
    quota_rules,
    right_answer,
)
from tests.fuzz.source import Source, cut, damaged
from tests.support.frames import fetch_request, fetch_response, produce_request, produce_response
from tests.support.logins import (
    handshake_request,
)
from tests.support.wire import Wire

PLAIN, INTER_BROKER, REWRITING, LOGIN = range(4)

# The most bytes that asyncio and uvloop read at once.
MAX_READ_BYTES: Final = 256 * 1024
MAX_STEPS: Final = 200
# A broker in a response takes at least ten bytes. Its advertised host has up to 20.
ADVERTISED: Final = {0: (b"proxy.example", 9192), 3: (b"2001:db8::1", 9195), 7: (b"h" * 20, 9199)}
MAX_GROWTH: Final = 4
# While a bucket has throttle time left, the session itself answers a fetch without records. No broker sends that
# response.
_EMPTY_BYTES: Final = max(
    len(fetch.empty_response(1, version, 1, error_code=0)) for version in range(HIGHEST_VERSION[ApiKey.FETCH] + 1)
)

# In so many steps, a session that is not at rest passes at least some bytes.
_MOST_IDLE_STEPS: Final = 400
# The session buffers the front of these responses until it is complete. A deep flood sends more bytes than it may
# buffer, a few times per run.
_LISTING: Final = (seeds.METADATA, seeds.DESCRIBE_CLUSTER, seeds.FIND_COORDINATOR)
_ENDLESS_BYTES: Final = 100_000_000
_DEEP_FLOOD: Final = 5
_MOST_DEEP_FLOODS: Final = 2

_END: Final = bytes(bytearray())  # a unique object, which marks that the client has closed its side

# -- one session with its input and output


class Stage:
    """One session with its input queues.

    Like the server, it gives the session only the bytes that the session reads now.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.session: Session = wire.session
        self.sent = bytearray()  # bytes that the client sent
        self.asked = bytearray()  # bytes that reached the broker
        self.answered = bytearray()  # bytes from the broker
        self.told = bytearray()  # bytes that reached the client
        self.error: ProtocolError | None = None
        self._client_queue: list[bytes] = []
        self._broker_queue: list[bytes] = []
        self._has_client_ended = False
        self._is_released = False
        self._most_asked: int | None = None  # the most bytes that may reach the broker after take_no_more

    def from_client(self, pieces: list[bytes]) -> None:
        """Send pieces of bytes from the client, unless the client has closed its side."""
        if not self._has_client_ended:
            self._client_queue += pieces
        self.pump()

    def from_broker(self, pieces: list[bytes]) -> None:
        """Send pieces of bytes from the broker."""
        self._broker_queue += pieces
        self.pump()

    def wake(self) -> None:
        """Call the timer if it is due."""
        self._look_at_the_clock()
        if not self.error and 0 < self.session.needs.wake_at_ms <= self.wire.now_ms:
            try:
                self.session.handle_timer(now_ms=self.wire.now_ms)
            except ProtocolError as error:
                self._end(error)
        self.pump()

    def end_client(self) -> None:
        """Close the client's side of the connection, after the bytes that the client has sent."""
        self.from_client([_END])
        self._has_client_ended = True

    def release(self) -> None:
        """Release the session: nothing waits for a throttle time from now on."""
        self._is_released = True
        self._look_at_the_clock()
        try:
            self.session.release(now_ms=self.wire.now_ms)
        except ProtocolError as error:
            self._end(error)
        self.pump()

    def take_no_more(self) -> None:
        """Tell the session to finish requests that have begun, and to begin no others."""
        self.session.take_no_more()
        if self._most_asked is None:
            self._most_asked = len(self.asked) + self.session.state.request_left
        self.pump()

    def have_neighbour(self, client_id: str, size_bytes: int) -> None:
        """Let another connection of the client use the quotas."""
        use_quotas(self.wire.listening, client_id, size_bytes, self.wire.now_ms)

    @property
    def slot_at_ms(self) -> int:
        """The time at which a slot of the fair call queue is given back next, or 0 if none is."""
        line = self.wire.listening.queue
        soonest_us = None if line is None else line.timeouts.soonest_us
        return 0 if soonest_us is None else -(-soonest_us // 1_000)

    def _give_slots_back(self) -> None:
        line = self.wire.listening.queue
        if line is not None:
            line.timeouts.park_due(self.wire.now_ms * 1_000)
            if line.dispatcher.granted():
                self.session.resume(now_ms=self.wire.now_ms)

    def pump(self) -> None:
        """Give the session the bytes that it reads now, and collect its output."""
        session = self.session
        self._look_at_the_clock()
        try:
            if not self.error:
                self._give_slots_back()
            while not self.error:
                if self._client_queue and session.state.blocked_by is None:
                    self._give_client(self._client_queue.pop(0))
                elif self._broker_queue and not session.state.delayed_until_ms:
                    piece = self._broker_queue.pop(0)
                    self.answered += piece
                    session.receive_from_broker(piece, now_ms=self.wire.now_ms)
                else:
                    break
        except ProtocolError as error:
            self._end(error)
        self._take()
        if not self.error:
            self.check_memory()
            self.check_progress()

    def _look_at_the_clock(self) -> None:
        self.session.state.now_ns = self.wire.now_ms * 1_000_000

    def _give_client(self, piece: bytes) -> None:
        if piece is _END:
            self.session.receive_end_from_client()
            return
        self.sent += piece
        self.session.receive_from_client(piece, now_ms=self.wire.now_ms)

    @property
    def passed_frames(self) -> int:
        """Return the number of whole frames that came out on both sides, plus one for a refused frame."""
        return frames_in(self.asked) + frames_in(self.told) + (self.error is not None)

    def check_memory(self) -> None:
        """Assert that each side buffers at most a head, a login or a held response, plus the bytes of one read."""
        session = self.session
        waiting = 2 * MAX_HEAD_BYTES if session._requests.login is None else 4 + MAX_LOGIN_BYTES
        if session.account.believes_replicas():
            waiting = MAX_REPLICA_FETCH_BYTES
        # The factor is 2, because the buffer has the waiting bytes and at most as many bytes that have passed.
        assert len(session._requests._data) <= 2 * waiting + MAX_READ_BYTES
        assert session.state.blocked_by is not None or _waiting_bytes(session) <= waiting
        assert session.state.blocked_by is None or not session._requests._pieces, "a blocked request is kept in pieces"
        assert len(session._responses.data) <= MAX_HELD_RESPONSE_BYTES + MAX_READ_BYTES + 8
        assert len(session._responses._pieces or b"") <= MAX_HELD_RESPONSE_BYTES + MAX_READ_BYTES
        assert len(session.state.in_flight) <= MAX_IN_FLIGHT
        if session._responses.hidden is not None:
            assert len(session._responses.hidden._held) <= MAX_READ_BYTES

    def check_progress(self) -> None:
        """Assert that a blocked client waits for a response, for a later time, or for the end of the connection."""
        session = self.session
        login = session._requests.login
        if session.state.blocked_by is not None and not session.state.is_ending:
            awaits = (
                session.state.in_flight or session._responses.begun or (login is not None and login.login.is_awaited)
            )
            at_ms = max(session.needs.wake_at_ms, self.slot_at_ms)
            assert awaits or at_ms > self.wire.now_ms, "blocked for ever"
        if session.state.delayed_until_ms:
            assert session._responses.data, "a delay without delayed bytes"
        if self._is_released:
            assert not session.state.delayed_until_ms
            assert session.muted_until_ms <= self.wire.now_ms

    def check_accounts(self, *, has_ended: bool) -> None:
        """Assert that no request is released twice, and that no request is in flight after the connection has ended."""
        for manager in self.wire.listening.quotas.managers:
            for bucket in manager:
                assert bucket.reserved.amount >= 0
                assert not has_ended or not (bucket.reserved.amount or bucket.holders)
        line = self.wire.listening.queue
        if has_ended:
            if line is not None:
                for holder in [one for one in line.timeouts._at_us if isinstance(one, HeldSlot)]:
                    line.timeouts.discard(holder)  # of a Produce with acks=0
                    holder.time_out(self.wire.now_ms * 1_000)
            assert not self.wire.listening.service.served
            assert line is None or not (line.dispatcher.in_flight or line.dispatcher.control_in_flight or line.timeouts)

    def finish(self) -> None:
        """Answer all requests, let time pass, and assert that all complete frames have passed."""
        session, wire = self.session, self.wire
        idle_steps = passed_bytes = 0
        while not (self.error or (session.is_idle and not self._client_queue)):
            idle_steps += 1
            if len(self.asked) + len(self.told) > passed_bytes:
                idle_steps, passed_bytes = 0, len(self.asked) + len(self.told)
            assert idle_steps < _MOST_IDLE_STEPS, "a session does not come to rest"
            if session.needs.wake_at_ms > wire.now_ms:
                wire.now_ms = session.needs.wake_at_ms
                self.wake()
            elif session.state.in_flight and not session._responses.left and not session._responses.data:
                self.from_broker([right_answer(session)])
            elif self.slot_at_ms > wire.now_ms:
                wire.now_ms = self.slot_at_ms
                self.wake()
            else:
                break  # the rest of a frame is missing, or a token of an unknown mechanism waits
        if not self.error and not self._client_queue and session.state.blocked_by is None:
            self._check_all_has_passed()

    def close(self) -> None:
        """End the connection."""
        self._look_at_the_clock()
        if self.error is None:
            _leave(self.session, self.answered, self.wire.now_ms)
        else:
            self.session.close(now_ms=self.wire.now_ms, has_passed=False)
        self.check_accounts(has_ended=True)

    def _check_all_has_passed(self) -> None:
        session = self.session
        taken_bytes = len(self.sent) - _waiting_bytes(session)
        assert len(self.asked) <= taken_bytes
        if not session._responses.data and session._responses.hidden is None and not session._responses.left:
            # The session itself answers fetches over their quota.
            answered_here = frames_in(self.told) - frames_in(self.answered)
            assert answered_here >= 0
            assert frames_in(self.sent[:taken_bytes]) == frames_in(self.asked) + answered_here
            assert answered_here or len(self.asked) == taken_bytes

    def _take(self) -> None:
        session = self.session
        if session.state.to_broker:
            self.asked += b"".join(session.state.to_broker)
            session.state.to_broker.clear()
        if session.state.to_client:
            self.told += b"".join(session.state.to_client)
            session.state.to_client.clear()
        assert len(self.asked) <= (len(self.sent) if self._most_asked is None else self._most_asked)
        most = MAX_GROWTH * len(self.answered)
        assert len(self.told) <= most or len(self.told) <= most + _EMPTY_BYTES * frames_in(self.sent)

    def _end(self, error: ProtocolError) -> None:
        self._take()
        self.error = error
        assert PASSWORD.decode() not in str(error)


def use_quotas(context: ConnectionContext, client_id: str, size_bytes: int, now_ms: int) -> None:
    """Open another connection of the client, produce and fetch ``size_bytes`` on it, and close it.

    Its charges remain.
    """
    other = Session(context)
    with suppress(ProtocolError):
        other.receive_from_client(produce_request(client_id=client_id, size_bytes=size_bytes), now_ms=now_ms)
        other.receive_from_client(fetch_request(2, client_id=client_id), now_ms=now_ms)
        other.receive_from_broker(produce_response(), now_ms=now_ms)
        other.receive_from_broker(fetch_response(2, size_bytes=size_bytes), now_ms=now_ms)
    _leave(other, bytearray(), now_ms)


def _leave(session: Session, answered: bytearray, now_ms: int) -> None:
    """Close the session of a client that has left. The broker then repeats its last bytes."""
    unanswered = session.close(now_ms=now_ms, has_passed=True)
    if unanswered is not None:
        for at in range(0, len(answered[-64:]), 7):
            unanswered.receive(bytes(answered[-64:][at : at + 7]), now_ms=now_ms)
        unanswered.close(now_ms=now_ms, is_charged=True)


def _waiting_bytes(session: Session) -> int:
    """Return the number of bytes from the client that are buffered and have not passed."""
    if session._requests._pieces is not None:
        return len(session._requests._pieces)
    return len(session._requests._data) - session._requests._at if session._requests._data else 0


def frames_in(stream: bytes | bytearray) -> int:
    """Return the number of whole frames in a stream."""
    count = at = 0
    end = len(stream)
    while at + 4 <= end:
        size = unpack_from(">i", stream, at)[0]
        assert size >= 0
        at += 4 + size
        count += at <= end
    return count


# -- the dialogue


class Twins:
    """Plays a dialogue with one session, or with two that get the same bytes, one in whole frames and one in pieces."""

    def __init__(self, source: Source, kind: int) -> None:
        choice = source.byte()
        self._is_twice = choice % 4 == 1
        self._source = source
        self._kind = kind
        rules, choice = quota_rules(source), source.byte()
        self._may_delay = _enforcement(choice) is Enforcement.DELAY or delays(rules)
        self._stages = [Stage(_wire(choice, kind, rules)) for _ in range(1 + self._is_twice)]
        self._first = self._stages[0]
        self._messages = ClientMessages(source)
        self._is_sound = True  # no frame is damaged yet
        # Whether a response was sent with addresses that the session replaces in a whole frame and hides in one that
        # streams.
        self._has_moved = False
        self._hides = False
        self._is_steady = True  # no time has passed, and no rule or charge has changed
        self._deep_floods = 0
        self._rest = b""  # the rest of a response of which the broker has sent the beginning
        if kind == LOGIN:
            mechanism = MECHANISMS[source.below(len(MECHANISMS))]
            self._send(handshake_request(mechanism, version=choice >> 7), is_damaged=False)

    def play(self) -> int:
        """Act on all decisions of the source, and return the number of frames that one session passed or refused."""
        source = self._source
        for _ in range(MAX_STEPS):
            if not source.has_more or self._first.error:
                break
            self._step(source.byte())
        self._feed_broker(self._rest)
        for stage in self._stages:
            stage.finish()
        self._compare()
        for stage in self._stages:
            stage.close()
        self._check_secrets()
        return self._first.passed_frames

    def _step(self, action: int) -> None:
        what, is_damaged = action & 0x1F, action >= 0xE0
        if what < 12:
            self._send(self._messages.request(), is_damaged=is_damaged)
        elif what < 22:
            self._answer(is_damaged=is_damaged)
        elif what < 26:
            self._send(self._messages.login(self._first.session), is_damaged=is_damaged)
        elif what < 28:
            self._wait()
        else:
            self._step_rarely(what)
        self._compare()

    def _step_rarely(self, what: int) -> None:
        source = self._source
        if what < 31 and source.byte() < 192:
            self._send(self._messages.request(), is_damaged=False)
        elif what == 28:
            self._is_sound = False
            self._send(source.take(source.below(48)), is_damaged=False)
        elif what == 29:
            self._is_sound = False
            self._feed_broker(source.take(source.below(48)))
        elif what == 30:
            self._flood(source.byte(), source.byte())
        else:
            self._turn(source.byte())

    def _flood(self, filler: int, choice: int) -> None:
        """Send up to 256 KiB of one repeated byte, or five times that, possibly in a frame that the session buffers."""
        flood = bytes([filler]) * (1 << (6 + self._source.below(13)))
        self._is_sound = False
        if not choice & 1:
            self._send(ENDLESS[choice >> 1 & 3] + flood, is_damaged=False)
            return
        if choice & 2:
            if not self._first.session.state.in_flight:
                self._send(self._messages.request(_LISTING if choice & 4 else seeds.API_KEYS), is_damaged=False)
            self._feed_broker(self._endless_answer())
        if choice & 8 and self._deep_floods < _MOST_DEEP_FLOODS:
            self._deep_floods += 1
            for _ in range(_DEEP_FLOOD):
                self._feed_broker(bytes([filler]) * MAX_READ_BYTES)
        else:
            self._feed_broker(flood)

    def _endless_answer(self) -> bytes:
        """Return the front of an extremely large response, up to its arrays."""
        answer = right_answer(self._first.session)
        return pack(">i", _ENDLESS_BYTES) + answer[4 : 8 + self._source.below(24)]

    def _turn(self, choice: int) -> None:
        if choice >= 224:
            for stage in self._stages:
                stage.end_client()
        elif choice >= 176:
            self._is_steady = False
            for stage in self._stages:
                stage.have_neighbour(seeds.CLIENT_IDS[choice & 3], 200 << (choice >> 2 & 7))
        elif choice >= 96:
            self._stop(choice)
        else:
            self._is_steady = False
            rules = quota_rules(self._source)
            self._may_delay |= delays(rules)
            for stage in self._stages:
                stage.wire.listening.quotas.update(ProxyConfig(listeners=(), quotas=rules, principals=PRINCIPALS))

    def _stop(self, choice: int) -> None:
        """Call ``release`` or ``take_no_more``, possibly in the middle of a response."""
        self._is_steady = False
        if choice & 1 and not self._rest:
            self._answer(is_damaged=False)
        for stage in self._stages:
            if not stage.error:
                (stage.release, stage.take_no_more)[choice >= 144]()

    def _send(self, data: bytes, *, is_damaged: bool) -> None:
        if is_damaged:
            data = damaged(data, self._source)
            self._is_sound = False
        pieces = cut(data, self._source)
        for stage in self._stages[1:]:
            stage.from_client([data] if data else [])
        self._first.from_client(pieces)

    def _answer(self, *, is_damaged: bool) -> None:
        if self._rest:
            rest, self._rest = self._rest, b""
            self._feed_broker(rest)
            return
        session = self._first.session
        choice = self._source.byte()
        login = session._requests.login
        if not session.state.in_flight and choice < 248 and not (login is not None and login.login.is_raw):
            return  # the broker has nothing to answer
        data = right_answer(session, choice & 3 if choice < 192 else choice >> 3)
        if self._kind == REWRITING and session.state.in_flight and session.state.in_flight[0].profile.api_key in MOVED:
            self._has_moved = True
        if is_damaged:
            data = damaged(data, self._source)
            self._is_sound = False
        if choice & 0x1C == 0x1C:
            at = self._source.below(len(data))
            data, self._rest = data[:at], data[at:]
            self._hides |= self._has_moved
        self._feed_broker(data)

    def _feed_broker(self, data: bytes) -> None:
        pieces = cut(data, self._source)
        # Pieces may change the output in two cases. First, endpoints are hidden instead of replaced in a response that
        # streams. Second, each piece makes the session retry a blocked or delayed request. That request may pass now,
        # and then the rest of the bytes may be its response.
        may_pass = self._may_delay or any(stage.session.state.blocked_by is not None for stage in self._stages)
        may_pass = may_pass and not (self._is_sound and self._is_steady)
        if self._is_twice and (self._has_moved or may_pass):
            pieces = [data] if data else []
        self._hides |= self._has_moved and len(pieces) > 1
        for stage in self._stages[1:]:
            stage.from_broker([data] if data else [])
        self._first.from_broker(pieces)

    def _wait(self) -> None:
        self._is_steady = False
        wait_ms = WAITS_MS[self._source.below(len(WAITS_MS))]
        end_ms = self._first.wire.now_ms + wait_ms
        while True:
            wakes = [stage.session.needs.wake_at_ms for stage in self._stages if not stage.error]
            due = [wake for wake in wakes if self._first.wire.now_ms < wake <= end_ms]
            if not due:
                break
            for stage in self._stages:
                stage.wire.now_ms = min(due)
            for stage in self._stages:
                stage.wake()
        for stage in self._stages:
            stage.wire.now_ms = end_ms

    def _let_others_go_first(self) -> None:
        """Let time pass for sessions whose looks of this millisecond are used up, which pieces use up sooner."""
        while any(
            not one.error and one.session.state.blocked_by is BlockedBy.OTHER_CONNECTIONS for one in self._stages
        ):
            for stage in self._stages:
                stage.wire.now_ms += 1
            for stage in self._stages:
                stage.wake()

    def _compare(self) -> None:
        first = self._first
        self._let_others_go_first()
        if self._is_sound and not first.error and first.session.state.blocked_by is None:
            assert not first.session._requests._data, "whole requests are kept"
        if not self._is_twice:
            return
        second = self._stages[1]
        assert (first.error and first.error.reason) == (second.error and second.error.reason)
        assert first.asked == second.asked
        if not first.error:
            assert first.told == second.told

    def _check_secrets(self) -> None:
        if self._kind == REWRITING and self._is_sound and not self._hides:
            for stage in self._stages:
                assert seeds.BROKERS_OWN_HOST.encode() not in stage.told


def _enforcement(choice: int) -> Enforcement:
    return tuple(Enforcement)[choice % 3]


def _wire(choice: int, kind: int, rules: tuple[QuotaRule, ...]) -> Wire:
    return Wire(
        *rules,
        enforcement=_enforcement(choice),
        shaping=tuple(Shaping)[choice // 3 % 2],
        principals=PRINCIPALS,
        is_inter_broker=kind == INTER_BROKER,
        max_frame_size_bytes=(104_857_600, 104_857_600, 3_000)[choice // 6 % 3],
        max_throttle_time_ms=25_000,
        max_buckets=(MAX_BUCKETS, 3)[choice // 18 % 2],
        addresses=_addresses() if kind == REWRITING else None,
        line=_line() if choice // 36 % 2 else None,
    )


class _Cost(WeightedTimeCost):
    """A cost provider in which each request costs 1."""

    on_refusal = 1

    def on_completion(self, done: CompletedRequest) -> int:
        return 1


def _line() -> ListenerQueue:
    """Return the fair call queue of a broker with one slot, for which other connections compete."""
    settings = FairCallQueue(backoff_enable=True, identity_provider=IdentityProvider.USER_CLIENT_ID)
    return ListenerQueue(
        DecayScheduler(settings, now_ms=0),
        Dispatcher(settings, FixedLimit(1)),
        _Cost(CostWeights()),
        identity=identities(settings),
        stats=QueueStats(),
        timeouts=SlotTimeouts(),
        wake=lambda: None,
    )


def _addresses() -> Addresses:
    addresses = Addresses(lambda *_: None)
    addresses.advertised = dict(ADVERTISED)
    return addresses
