"""A follower's fetch brings at once what is not throttled. Throttled partitions are left out, and never for long.

The leader is asked for each partition that is in sync, or that no limit is for. Only what lags may be left out, may be
asked for in smaller pieces, and may lose the batches at the end of its records. An answer without a leader comes after
half a second at most. A fetch of a session with the leader passes as it is. While something lags there is none, but the
follower may have one with the proxy, in which an answer contains only what the leader was asked for.
"""

from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

from tests.simulation.checks.disturbance import SMALL_MEMORY
from tests.simulation.checks.replication import FollowerCheck, Key, asked_of, is_of_follower, told_by
from tests.simulation.wire import records
from tests.simulation.wire.common import WireError
from tests.simulation.wire.transfer import FetchedPartition, FetchPartition

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.network import End
    from tests.simulation.world import World

# A fetch is held for half a second. A process may stand still for five.
_HELD_MS: Final = 1_500.0
_PAUSED_MS: Final = 6_500.0
# The leader is asked for no more of a partition of which nothing is known.
_FIRST_LOOK_BYTES: Final = 64 * 1024
# A follower asks for no more of a partition (replica.fetch.max.bytes).
_LARGEST_BYTES: Final = 1_048_576
_NO_SESSION: Final = -1
_SESSION_NOT_FOUND: Final = 70


class _Link:
    """One follower's connection: what the last responses said of each partition, and the fetch in hand."""

    __slots__ = ("forwarded", "got", "has_lag", "most_bytes", "open", "since_ms", "told", "unfit")

    def __init__(self) -> None:
        self.told: dict[Key, FetchedPartition] = {}
        self.has_lag = False  # whether the last response showed that something lags
        self.open: Exchange | None = None
        self.forwarded: Exchange | None = None  # the last one that the leader got
        self.got: dict[Key, FetchPartition] = {}  # what the leader was asked for, without a session
        self.most_bytes = 0  # what it was asked for in all
        self.unfit: dict[Key, FetchPartition] = {}  # what it was asked for and had no batch that fits
        self.since_ms: float | None = None  # from when on the fetch in hand has waited for nothing


class FollowerFetches(FollowerCheck):
    """Compares followers' fetches on both sides of the proxy, with one rule for each partition."""

    name: ClassVar[str] = "followers' fetches"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._links: dict[int, _Link] = {}

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Forget what was known of a connection."""
        super().connection_closed(client, connection, by_client=by_client)
        self._links.pop(connection, None)

    # -- requests --

    def sent(self, exchange: "Exchange") -> None:
        """It waits."""
        super().sent(exchange)
        if is_of_follower(exchange):
            link = self._links.setdefault(exchange.connection, _Link())
            link.open = exchange
            link.since_ms = None

    def at_broker(self, exchange: "Exchange", node_id: int, frame: bytes) -> None:
        """Compare what the follower and the proxy have asked for."""
        super().at_broker(exchange, node_id, frame)
        link = self._links.get(exchange.connection)
        if link is None or not exchange.is_inter_broker:
            return
        parts = self._fetched[exchange.connection]
        got, got_parts = asked_of(frame)
        link.forwarded = exchange
        link.most_bytes = got.max_bytes
        link.got = got_parts if got.session_epoch == _NO_SESSION else {}
        if not self._is_known(exchange):
            link.has_lag = False  # the last response belongs to the limits of before
            return
        if not self._limits.is_on or got.session_epoch != _NO_SESSION:
            if frame != exchange.request:
                self._fail(exchange, "is changed, and nothing is throttled in it")
            if self._limits.is_on and link.has_lag:
                self._fail(exchange, "belongs to a session, and something lagged in the last response")
            return
        if got_parts.keys() - parts.keys():
            self._fail(exchange, f"asks for {got_parts.keys() - parts.keys()}, and the follower has not")
        for key, part in parts.items():
            self._judge_asked(exchange, link, key, part, got_parts.get(key))

    def _judge_asked(
        self, exchange: "Exchange", link: _Link, key: Key, asked: FetchPartition, got: FetchPartition | None
    ) -> None:
        if got is None:
            if not self._may_be_left_out(exchange, link, key, asked.offset):
                self._fail(exchange, f"is forwarded without {key}, which is in sync or not throttled")
            return
        if got._replace(max_bytes=asked.max_bytes) != asked or got.max_bytes > asked.max_bytes:
            self._fail(exchange, f"asked for {asked} of {key}, and the leader got {got}")
        least = asked.max_bytes
        if self._is_throttled(exchange, key):
            least = 1 if self._lags(link, key, asked.offset) else min(least, _FIRST_LOOK_BYTES)
        elif self._is_measured(exchange, key):
            least = min(least, _FIRST_LOOK_BYTES)
        unfit = link.unfit.get(key)
        if unfit is not None and unfit._replace(max_bytes=got.max_bytes) == got and got.max_bytes <= unfit.max_bytes:
            self._fail(exchange, f"asks for {got.max_bytes} B of {key}, into which no batch has fitted before")
        if got.max_bytes < least:
            self._fail(exchange, f"asks for {got.max_bytes} B of {key} only, which is in sync or not throttled")

    # -- responses --

    def received(self, exchange: "Exchange") -> None:
        """Compare what the leader and the proxy have answered."""
        link = self._links.get(exchange.connection)
        if link is None or not exchange.is_inter_broker:
            return
        link.open = None
        is_of_session = self._is_of_session(exchange)
        is_known = self._is_known(exchange)
        assert exchange.response is not None
        error, after = told_by(exchange.response, exchange.api_version)
        before = exchange.response_of_broker
        if is_of_session or error or not is_known:
            link.unfit.clear()
        if is_known and before is None:
            self._judge_own(exchange, link, error, after)
        elif is_known and before is not None:
            if is_of_session or error or not self._limits.is_on:
                if before != exchange.response:
                    self._fail(exchange, "has a response that is changed, and nothing is throttled in it")
            else:
                answered = told_by(before, exchange.api_version)[1]
                self._judge_parts(exchange, link, answered, after)
                self._note_unfit(link, answered)
        link.told.update(after)
        is_of_proxy = not is_of_session and asked_of(exchange.request)[0].session_epoch > 0
        link.has_lag = is_known and any(
            self._is_measured(exchange, key) and one.high_watermark > exchange.detail.get(key, one.high_watermark)
            for key, one in (link.told if is_of_proxy else after).items()
            if not one.error_code
        )

    def _judge_own(self, exchange: "Exchange", link: _Link, error: int, after: dict[Key, FetchedPartition]) -> None:
        """The proxy itself has answered: no session, or nothing that has room."""
        if exchange.forwarded_first_ms >= 0:
            self._fail(exchange, "was forwarded, and answered without its leader")
        asked, _ = asked_of(exchange.request)
        if error:
            if error != _SESSION_NOT_FOUND or asked.session_epoch <= 0 or not self._limits.is_on:
                self._fail(exchange, f"is answered with error {error}")
            return
        for key, part in self._fetched[exchange.connection].items():
            if not self._may_be_left_out(exchange, link, key, part.offset):
                self._fail(exchange, f"is answered without its leader, and {key} is in sync or not throttled")
            self._judge_left_out(exchange, link, key, after.get(key))

    def _judge_parts(
        self, exchange: "Exchange", link: _Link, before: dict[Key, FetchedPartition], after: dict[Key, FetchedPartition]
    ) -> None:
        for key, part in self._fetched[exchange.connection].items():
            theirs, ours = before.get(key), after.get(key)
            if theirs is None:
                self._judge_left_out(exchange, link, key, ours)
                continue
            if ours is None or ours._replace(records=theirs.records) != theirs:
                self._fail(exchange, f"has {theirs!r:.200} of {key} by its leader, and {ours!r:.200} by the proxy")
            sent, passed = theirs.records or b"", ours.records or b""
            if passed in (sent, _whole(sent)):
                continue
            if part.offset >= theirs.high_watermark or not self._is_throttled(exchange, key):
                self._fail(exchange, f"gets {len(passed)} of {len(sent)} B of {key}, which is in sync or not throttled")
            if not sent.startswith(passed) or not _is_whole(passed):
                self._fail(exchange, f"gets {len(passed)} of {len(sent)} B of {key}, which are not whole batches")

    @staticmethod
    def _note_unfit(link: _Link, answered: dict[Key, FetchedPartition]) -> None:
        """Note the partitions that lag, and of which the leader had no batch that fits into a response with room."""
        left_bytes = link.most_bytes - sum(len(one.records or b"") for one in answered.values())
        for key, got in link.got.items():
            one = answered.get(key)
            is_unfit = one is not None and not one.records and not one.error_code and got.offset < one.high_watermark
            if is_unfit and got.max_bytes < _LARGEST_BYTES and got.max_bytes <= left_bytes:
                link.unfit[key] = got
            else:
                link.unfit.pop(key, None)

    def _judge_left_out(self, exchange: "Exchange", link: _Link, key: Key, ours: FetchedPartition | None) -> None:
        """What was left out has an entry that says nothing new, and in a session none."""
        if asked_of(exchange.request)[0].session_epoch > 0:
            if ours is not None:
                self._fail(exchange, f"has {ours!r:.200} for {key}, which was left out of a session")
            return
        if ours is None:
            self._fail(exchange, f"has no entry for {key}")
        told = link.told.get(key)
        if told is None or ours != told._replace(records=ours.records) or ours.records:
            self._fail(exchange, f"has {ours!r:.200} for {key}, which was left out, and the last one was {told!r:.200}")

    # -- what is throttled --

    def _is_throttled(self, exchange: "Exchange", key: Key) -> bool:
        return any(self._buckets(exchange, key))

    def _is_measured(self, exchange: "Exchange", key: Key) -> bool:
        return self._limits.is_on and self._limits.concerns(*self._place(exchange, key))

    @staticmethod
    def _lags(link: _Link, key: Key, offset: int) -> bool:
        told = link.told.get(key)
        return told is not None and offset < told.high_watermark

    def _may_be_left_out(self, exchange: "Exchange", link: _Link, key: Key, offset: int) -> bool:
        return self._lags(link, key, offset) and self._is_throttled(exchange, key)

    def _fail(self, exchange: "Exchange", what: str) -> NoReturn:
        self.world.fail(self.name, f"{exchange} {what}")

    # -- what waits --

    def step(self) -> None:
        """Look at the fetches in hand twice a second."""
        now_ms = self.world.clock.now_ms
        settings = self.world.settings
        if settings.has_queue or settings.max_buffered < SMALL_MEMORY or self.ledger.is_stopping:
            return
        for link in self._links.values():
            self._look(link, now_ms)

    def _look(self, link: _Link, now_ms: float) -> None:
        exchange = link.open
        if exchange is None or link.forwarded is None:
            return  # before the first fetch the proxy has to reach the leader
        is_request = exchange.forwarded_first_ms < 0
        is_due = is_request or exchange.answered_ms >= 0
        if not is_due or exchange.passed_ms >= 0 or _is_busy(exchange.client_end, link.forwarded.broker_end):
            link.since_ms = None
            return
        if link.since_ms is None:
            link.since_ms = now_ms
        most_ms = _PAUSED_MS if self.world.scenario.fired.get("proxy paused") else _HELD_MS
        if now_ms - link.since_ms > most_ms:
            what = "is neither forwarded nor answered" if is_request else "is answered by its leader, and has waited"
            self._fail(exchange, f"{what} for {now_ms - link.since_ms:.0f} ms")


def _is_busy(*ends: "End | None") -> bool:
    """Return whether the network may still have what the proxy waits for, or has no room for what it has written."""
    for end in ends:
        if end is None or not end.is_open or not end.peer.is_open or end.is_on_the_way or end.peer.is_on_the_way:
            return True
    return False


def _whole(data: bytes) -> bytes:
    """Return the whole batches in front. A follower throws the piece behind them away."""
    try:
        return data[: sum(batch.size for batch in records.parse_batches(data, may_be_cut=True))]
    except WireError:
        return data


def _is_whole(data: bytes) -> bool:
    """Return whether bytes are batches, and all of the last one."""
    try:
        records.parse_batches(data)
    except WireError:
        return False
    return True
