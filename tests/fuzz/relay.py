"""Fuzzes the relay: it must do what the event loop does.

The fuzzer's bytes decide a dialogue between a client and a broker. It runs through two connections of the proxy, one
with a relay and one without. Their sockets are in memory, may have little room, end at any byte, or are reset. The
second connection reads as many bytes at once as the first, as an event loop might, so that buffers fill up alike. All
of these must be the same at each time:

* the bytes that reach the broker and the client, and which sockets are read
* what is counted and charged, and the timers
* whether the connection is closed, and for which cause

The relay gives the session a read in pieces: heads, and the rest of each body. So there are these differences:

* After a protocol error, the relay has passed on the whole responses before it. The event loop drops those that it has
  read at once with the error.
* If a send finds that a peer is lost, the relay closes the connection at once, and the event loop after the read.
* A broker that answers a request before it has it may be found out or not, because a request that waits is tried
  again after each piece. So nothing is compared once a damaged response meets a waiting request.
* A frame that is collected is read again each time that twice as many bytes have arrived. So the pieces decide when an
  endless one is found out, and nothing is compared once many bytes were collected.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from kafka_quota_proxy.config.model import Address, Enforcement, Listener, RelayKind
from kafka_quota_proxy.proxy.server.clients.relay import _HEAD_BYTES, _SHORT_READ_BYTES, _SPLICED_BYTES
from kafka_quota_proxy.proxy.server.clients.relay_sockets import BUFFER_BYTES
from kafka_quota_proxy.proxy.session.client_account import Policy
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest
from tests.fuzz import seeds
from tests.fuzz.dialogue import frames_in, use_quotas
from tests.fuzz.messages import (
    ENDLESS,
    WAITS_MS,
    ClientMessages,
    answer_to,
    quota_rules,
    right_answer,
)
from tests.fuzz.relay_network import UNLIMITED_BYTES, Clock
from tests.fuzz.relayed import BROKER, CLIENT, Proxied, clocked
from tests.fuzz.source import Source, cut, damaged
from tests.support.frames import framed
from tests.support.wire import START_MS

_MAX_STEPS: Final = 120
_MOST_LONG: Final = 12
# Around the lengths at which the relay does something else.
_LONG: Final = (
    _HEAD_BYTES,
    _SHORT_READ_BYTES,
    _SPLICED_BYTES,
    _SPLICED_BYTES + _HEAD_BYTES,
    2 * _SPLICED_BYTES,
    _SPLICED_BYTES + _SHORT_READ_BYTES,
    BUFFER_BYTES,
    BUFFER_BYTES + 2 * _SPLICED_BYTES,
)
# No two parts of it of up to 251 bytes are the same, so bytes in a wrong order are noticed.
_PATTERN: Final = bytes(range(251)) * (_LONG[-1] // 251 + 2)
_ROOMS: Final = (0, 1, 300, _SHORT_READ_BYTES, _SPLICED_BYTES - 1, _SPLICED_BYTES + 1, 70_000, UNLIMITED_BYTES)
_IDLE_MS: Final = (None, 5_000, 60_000)
_MOST_IDLE_STEPS: Final = 400
_BOTH: Final = (seeds.PRODUCE, seeds.FETCH)


def play(source: Source) -> int:
    """Run a dialogue, and return the number of frames that passed with the relay, plus one for a refused frame."""
    clock = Clock(START_MS)
    with clocked(clock):
        return RelayDialogue(source, clock).play()


class RelayDialogue:
    """A dialogue that runs over a relay and over the event loop."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._messages = ClientMessages(source)
        rules, choice, pipe = quota_rules(source), source.byte(), source.byte()
        enforcement = tuple(Enforcement)[choice % 3]
        largest = (104_857_600, 104_857_600, 104_857_600, 3_000)[choice // 3 % 4]
        policy = Policy(largest, enforcement, choice // 12 % 4 == 1, "sub")
        self._relayed, self._looped = (
            Proxied(
                Listener(
                    name="fuzzed",
                    bind=Address(host="127.0.0.1", port=9192),
                    idle_timeout_ms=_IDLE_MS[choice // 48 % 3],
                    max_connection_age_ms=(None, 200_000)[pipe // 4 % 2],
                    relay=kind,
                ),
                policy,
                rules,
                clock,
                (16 * 4_096, 1 << 20, BUFFER_BYTES, 5_000)[pipe % 4],
            )
            for kind in (RelayKind.AUTO, RelayKind.PYTHON)
        )
        self._both = (self._relayed, self._looped)
        self._is_compared = True
        self._is_sound = True  # the broker has sent nothing but right answers
        self._has_room = False  # whether a socket may have room that its transport has not noticed
        self._is_lost_unseen = False  # whether a side is lost, and is written to before it is read
        self._long_count = 0
        self._matched = {CLIENT: 0, BROKER: 0}  # how many bytes were compared
        self._rest = b""  # the rest of a response of which the broker has sent the beginning
        self._pending: list[PendingRequest] = []

    def play(self) -> int:
        """Act on all decisions of the source."""
        for _ in range(_MAX_STEPS):
            if not self._source.has_more or (self._relayed.connection.is_closed and not self._pending):
                break
            self._step(self._source.byte())
            if self._has_room:
                self._flush()
        self._finish()
        written = {fd: transport.written for fd, transport in self._relayed.transports.items()}
        errors = sum(self._relayed.listener.counters.protocol_errors.values())
        return sum(map(frames_in, written.values())) + errors

    # -- the steps --

    def _step(self, action: int) -> None:
        what, is_damaged = action & 0x1F, action >= 0xE8
        if what < 8:
            self._send(self._messages.request(), is_damaged=is_damaged)
        elif what < 12:
            self._send(self._lengthened(self._messages.request(_BOTH)), is_damaged=is_damaged)
        elif what < 19:
            self._answer(is_long=what < 15, is_damaged=is_damaged)
        elif what < 24:
            self._give_room((CLIENT, BROKER)[what & 1], self._source.byte())
        elif what < 26:
            self._send(self._messages.login(self._relayed.connection.session), is_damaged=is_damaged)
        elif what < 28:
            self._wait(WAITS_MS[self._source.below(len(WAITS_MS))])
        else:
            self._step_rarely(what)

    def _step_rarely(self, what: int) -> None:
        source = self._source
        if what < 31 and source.byte() < 128:
            for _ in range(1 + source.below(8)):
                self._arrive(CLIENT, self._messages.request(_BOTH))
            self._advance()
        elif what == 28:
            self._send(source.take(source.below(48)), is_damaged=False)
        elif what == 29:
            self._is_sound = False
            self._feed(BROKER, source.take(source.below(48)))
        elif what == 30:
            self._send(ENDLESS[source.below(4)] + bytes([source.byte()]) * (1 << source.below(18)), is_damaged=False)
        else:
            self._turn(source.byte())

    def _turn(self, choice: int) -> None:
        """Let something happen that is neither a request nor a response."""
        source = self._source
        end = (CLIENT, BROKER)[choice & 1]
        if choice >= 232:
            self._each(lambda one: setattr(one.socket(end), "is_ended", True))
        elif choice >= 208:
            self._each(lambda one: one.socket(end).reset())
        elif choice >= 160:
            client_id, size_bytes = seeds.CLIENT_IDS[choice & 3], 200 << (choice >> 2 & 7)
            self._each(lambda one: use_quotas(one.route.context, client_id, size_bytes, self._clock.now_ms))
        elif choice >= 128:
            rules = quota_rules(source)
            self._each(lambda one: one.update(rules))
        elif choice >= 112:
            self._each(lambda one: one.connection.is_closed or one.connection.release())
        elif choice >= 88:
            self._each(lambda one: one.connection.drain("shutdown"))
        elif choice >= 80:
            self._each(lambda one: one.connection.abort("max_buffered"))
        elif choice >= 72:
            self._each(lambda one: setattr(one, "dials", False))
        else:
            for _ in range(1 + choice % 16):
                self._answer(is_long=False, is_damaged=False)
        self._advance()

    def _each(self, step: Callable[[Proxied], object]) -> None:
        """Do something with both connections."""
        for one in self._both if self._is_compared else (self._relayed,):
            one.act(partial(step, one))

    # -- what is sent --

    def _lengthened(self, frame: bytes) -> bytes:
        """Return the frame with a long body, unless there were many."""
        choice = self._source.byte()
        self._long_count += 1
        if self._long_count > _MOST_LONG:
            return frame
        size_bytes = max(_LONG[choice & 7] + (choice >> 3) - 16, 0)
        return framed(frame[4:] + _PATTERN[:size_bytes])

    def _send(self, data: bytes, *, is_damaged: bool) -> None:
        self._feed(CLIENT, damaged(data, self._source) if is_damaged else data)

    def _answer(self, *, is_long: bool, is_damaged: bool) -> None:
        """Send a response to the oldest request, a part of it, or the rest of a response."""
        source, relayed = self._source, self._relayed
        if self._rest:
            rest, self._rest = self._rest, b""
            self._feed(BROKER, rest)
            return
        choice = source.byte()
        login = relayed.connection.session._requests.login
        if relayed.connection.is_closed:
            if not self._pending:
                return
            data = answer_to(self._pending.pop(0), choice)
        elif relayed.state.in_flight or choice >= 248 or (login is not None and login.login.is_raw):
            self._is_sound &= bool(relayed.state.in_flight)
            data = right_answer(relayed.connection.session, choice & 3 if choice < 192 else choice >> 3)
        else:
            return  # the broker has nothing to answer
        if is_long:
            data = self._lengthened(data)
        if is_damaged:
            self._is_sound = False
            data = damaged(data, source)
        if choice & 0x1C == 0x1C:
            at = source.below(len(data))
            data, self._rest = data[:at], data[at:]
        self._feed(BROKER, data)

    def _feed(self, fd: int, data: bytes) -> None:
        """Let bytes of one side arrive in pieces, which are read at once or one by one."""
        choice = self._source.byte()
        step = 1 + len(data) // 5
        pieces = [data[at : at + step] for at in range(0, len(data), step)] if choice >= 224 else [data]
        if choice & 1:
            pieces = cut(data, self._source)
        if choice & 0x78 == 0x78:
            self._is_lost_unseen = True
            for one in self._both:
                one.socket(CLIENT + BROKER - fd).reset()
        for piece in pieces:
            if choice & 4:
                self._give_room(CLIENT + BROKER - fd, self._source.byte())
            self._arrive(fd, piece)
            if choice & 6:
                self._advance()
        self._advance()

    def _arrive(self, fd: int, data: bytes) -> None:
        for one in self._both:
            one.socket(fd).arrive(data)

    # -- what else happens --

    def _give_room(self, fd: int, choice: int) -> None:
        """Let the system take more or fewer bytes for a peer. The transports may not notice that before the next read.

        So bytes that are sent directly could overtake those that wait for room.
        """
        room_bytes = UNLIMITED_BYTES if choice & 1 else _ROOMS[choice >> 1 & 7]
        for one in self._both:
            one.socket(fd).room_bytes = room_bytes
        self._has_room = choice >= 128
        if not self._has_room:
            self._flush()

    def _flush(self) -> None:
        """Let the transports send what there is room for now."""
        self._has_room = False
        self._each(Proxied.flush)
        self._advance()

    def _wait(self, wait_ms: int) -> None:
        """Let time pass, and stop at each timer."""
        end_ms = self._clock.now_ms + wait_ms
        while (timers := self._relayed.loop.timers_ms) and timers[0] <= end_ms:
            self._clock.now_ms = max(timers[0], self._clock.now_ms)
            self._advance()
        self._clock.now_ms = end_ms
        self._each(Proxied.check_time_limits)
        self._advance()

    # -- the comparison --

    def _advance(self) -> None:
        """Let both connections read everything, and compare them."""
        relayed, looped = self._relayed, self._looped
        relayed.has_blocked = relayed.state.blocked_by is not None
        turns = relayed.settle()
        if not relayed.connection.is_closed:
            self._pending = relayed.state.in_flight[:]
        relayed.check()
        self._is_compared &= (self._is_sound or not relayed.has_blocked) and not relayed.has_collected
        if self._is_compared:
            looped.follow(turns)
            self._compare()

    def _compare(self) -> None:
        ours, theirs = self._relayed.outcome(), self._looped.outcome()
        if self._is_lost_unseen and ours["closed"]:
            self._is_compared = False
            assert ours["disconnects"] == theirs["disconnects"] or theirs["errors"]
            return
        if ours["errors"]:
            self._is_compared = False
            for key in ("closed", "errors", "disconnects"):
                assert ours[key] == theirs[key], key
            for fd, transport in self._looped.transports.items():
                assert self._relayed.transports[fd].written.startswith(transport.written)
            return
        for key, value in ours.items():
            assert value == theirs[key], f"{key}: the relay has {value}, the event loop has {theirs[key]}"
        for fd, transport in self._relayed.transports.items():
            begin = self._matched[fd]
            assert transport.written_from(begin) == self._looped.transports[fd].written_from(begin)
            self._matched[fd] = transport.written_bytes

    def _finish(self) -> None:
        """Answer all requests, let time pass, and end the connection."""
        for fd in (CLIENT, BROKER):
            for one in self._both:
                one.socket(fd).room_bytes = UNLIMITED_BYTES
        self._flush()
        relayed = self._relayed
        for _ in range(_MOST_IDLE_STEPS):
            if self._rest or relayed.state.in_flight or self._pending:
                self._arrive(BROKER, self._rest or answer_to((relayed.state.in_flight or self._pending)[0]))
                self._rest = b""
                if relayed.connection.is_closed:
                    del self._pending[:1]
                self._advance()
            elif relayed.state.blocked_by is not None and relayed.loop.timers_ms:
                self._wait(relayed.loop.timers_ms[0] - self._clock.now_ms)
            else:
                break
        for fd in (CLIENT, BROKER):
            self._each(lambda one, fd=fd: setattr(one.socket(fd), "is_ended", True))  # type: ignore[misc]
            self._advance()
            self._wait(40_000)
        relayed.check_end()
        if self._is_compared:
            self._looped.check_end()
