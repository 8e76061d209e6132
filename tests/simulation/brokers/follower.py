"""A follower: it copies the partitions that one broker has from another, by Fetch requests with a session."""

from typing import TYPE_CHECKING, Final

from tests.simulation.ledger import Entity, Exchange
from tests.simulation.network import Handler
from tests.simulation.wire import records, transfer
from tests.simulation.wire.common import correlation_id_of, get_i32

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Cluster
    from tests.simulation.brokers.partition import Partition
    from tests.simulation.network import End
    from tests.simulation.scheduler import Event

_FIRST_TOPIC_ID: Final = 13
# replica.fetch.wait.max.ms, replica.fetch.min.bytes, replica.fetch.backoff.ms, replica.socket.timeout.ms
_WAIT_MS: Final = 500
_MIN_BYTES: Final = 1
_BACKOFF_MS: Final = 1_000.0
_TIMEOUT_MS: Final = 30_000.0
_OFFSET_OUT_OF_RANGE: Final = 1
_SESSION_NOT_FOUND: Final = 70
_NO_SESSION: Final = (0, 0)

Key = tuple[str | bytes, int]


class _Copy:
    """A partition that is copied. ``sent`` is what the leader's session knows of it, or None."""

    __slots__ = ("backs_off_until_ms", "offset", "partition", "sent")

    def __init__(self, partition: "Partition", offset: int) -> None:
        self.partition = partition
        self.offset = offset
        self.sent: transfer.FetchPartition | None = None
        self.backs_off_until_ms = 0.0


class Follower(Handler):
    """Fetches from one leader for one broker, as a replica fetcher thread of Kafka does.

    Attributes:
        max_bytes: The most that a response may hold (replica.fetch.response.max.bytes).
        partition_max_bytes: The most for a partition (replica.fetch.max.bytes).
        hangs_up: How often it will close its connection when a fetch of something that lags is at the leader.
    """

    def __init__(self, cluster: "Cluster", node_id: int, leader: int, *, version: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.node_id = node_id
        self.leader = leader
        self.version = version
        self.name = f"follower-{node_id}-of-{leader}"
        self.host = f"10.0.1.{node_id}"
        self.entity = Entity("ANONYMOUS", f"broker-{node_id}-fetcher-0", self.host)
        self.max_bytes = 10_485_760
        self.partition_max_bytes = 1_048_576
        self.hangs_up = 0
        self.is_running = False
        self._copies: dict[Key, _Copy] = {}
        self._forgotten: list[Key] = []
        self._in_session: dict[Key, None] = {}
        self._session = _NO_SESSION
        self._asked: dict[Key, tuple[_Copy, int]] = {}
        self._exchange: Exchange | None = None
        self._end: End | None = None
        self._connection = 0
        self._has_response = False  # whether a fetch of this connection was answered
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        self._timer: Event | None = None

    def start(self) -> None:
        """Begin to copy what the leader leads."""
        if not self.is_running:
            self.is_running = True
            for partition in self.cluster.partitions.values():
                self.leader_changed(partition)

    def stop(self) -> None:
        """Stop, because the broker of this follower dies."""
        self.is_running = False
        self._hang_up()

    def leader_changed(self, partition: "Partition") -> None:
        """Begin or stop to copy a partition, from the end of this broker's own log."""
        key: Key = (partition.topic_name if self.version < _FIRST_TOPIC_ID else partition.topic_id, partition.index)
        known = self._copies.pop(key, None)
        if known is not None and known.sent is not None:
            self._forgotten.append(key)
        if self.is_running and partition.leader == self.leader and self.node_id in partition.states:
            self._copies[key] = _Copy(partition, partition.states[self.node_id].log_end)
            if self._end is None and self._timer is None:
                self._go_on()

    def lagged(self) -> None:
        """Hang up, if that is planned, because the leader reads a fetch of something that lags.

        The first fetch of a connection does not count, because the proxy learns from its response what lags.
        """
        if self.hangs_up and self._has_response:
            self.hangs_up -= 1
            self._hang_up()
            self._try_later()

    # -- the connection --

    def connected(self, end: "End") -> None:
        """The connection to the leader, or to the proxy, is open."""
        self._connection = self.world.ledger.next_connection()
        self.world.ledger.connected(self.name, self._connection, self.entity)
        self._go_on()

    def received(self, end: "End", data: bytes) -> None:
        """Add bytes, and read the response when it is whole."""
        chunks = self._chunks
        if chunks and len(chunks[0]) < 4:
            data = b"".join(chunks) + data
            chunks.clear()
            self._buffered_bytes = 0
        chunks.append(data)
        self._buffered_bytes += len(data)
        if len(chunks[0]) < 4 or self._buffered_bytes < get_i32(chunks[0])[0] + 4:
            return
        frame = b"".join(chunks)
        chunks.clear()
        self._buffered_bytes = 0
        self._read(frame)

    def ended(self, end: "End") -> None:
        """The leader has closed."""
        self._hang_up(by_client=False)
        self._try_later()

    def lost(self, end: "End", is_reset: bool) -> None:
        """The connection is gone."""
        self._hang_up(by_client=False)
        self._try_later()

    def _hang_up(self, *, by_client: bool = True) -> None:
        end, self._end = self._end, None
        if end is not None:
            self.world.network.give_up(end)
            end.abort()
        if self._connection:
            self.world.ledger.disconnected(self.name, self._connection, by_client=by_client)
        self._connection = 0
        self._has_response = False
        self._exchange = None
        self._chunks.clear()
        self._buffered_bytes = 0
        self._begin_session(_NO_SESSION)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _try_later(self) -> None:
        if self.is_running:
            self._timer = self.world.call_later(_BACKOFF_MS, self._go_on)

    def _time_out(self) -> None:
        self.world.story.tell(f"{self.name} waits for a response no longer")
        self._hang_up()
        self._go_on()

    def _go_on(self) -> None:
        """Fetch again, on a new connection if there is none. Without anything to copy, hang up."""
        self._timer = None
        if not self._copies:
            self._hang_up()
        elif self._connection:
            self._fetch()
        elif self._end is None and self.cluster.route is not None:
            self._end = self.world.network.connect(self.host, self.cluster.route(self.node_id, self.leader), self)

    # -- requests --

    def _fetch(self) -> None:
        now_ms = self.world.clock.now_ms
        stall_ms = self.cluster.brokers[self.node_id].stalled_until_ms - now_ms
        if stall_ms > 0:
            self._timer = self.world.call_later(stall_ms + 1, self._go_on)
            return
        is_full = not self._session[1]
        topics: dict[str | bytes, list[transfer.FetchPartition]] = {}
        self._asked = {}
        for key, copy in self._copies.items():
            if copy.backs_off_until_ms > now_ms:
                if copy.sent is not None:
                    copy.sent = None
                    self._forgotten.append(key)
                continue
            epoch = copy.partition.leader_epoch
            wanted = transfer.FetchPartition(key[1], copy.offset, self.partition_max_bytes, epoch, 0)
            self._asked[key] = (copy, copy.offset)
            if is_full or wanted != copy.sent:
                copy.sent = wanted
                topics.setdefault(key[0], []).append(wanted)
        if not self._asked:
            self._try_later()
            return
        forgotten: dict[str | bytes, list[int]] = {}
        for key in self._forgotten:
            if key in self._in_session and key not in self._asked:
                forgotten.setdefault(key[0], []).append(key[1])
        self._forgotten.clear()
        self._in_session = dict.fromkeys(self._asked)
        self._send(
            [transfer.FetchTopic(topic, of_topic) for topic, of_topic in topics.items()],
            [transfer.ForgottenTopic(topic, indexes) for topic, indexes in forgotten.items()],
        )

    def _send(self, topics: list[transfer.FetchTopic], forgotten: list[transfer.ForgottenTopic]) -> None:
        ledger = self.world.ledger
        correlation_id = ledger.next_id()
        session_id, epoch = self._session
        frame = transfer.fetch.request(
            correlation_id, self.version, self.entity.client_id, topics, max_wait_ms=_WAIT_MS, min_bytes=_MIN_BYTES,
            max_bytes=self.max_bytes, session_id=session_id, session_epoch=epoch, forgotten=forgotten,
            replica_id=self.node_id, replica_state=transfer.ReplicaState(self.node_id),
        )  # fmt: skip
        self._exchange = Exchange(
            correlation_id, frame, api_key=transfer.fetch.key, api_version=self.version, client=self.name,
            connection=self._connection, entity=self.entity, broker=self.leader, is_inter_broker=True,
            detail={key: offset for key, (_, offset) in self._asked.items()}, client_end=self._end,
        )  # fmt: skip
        ledger.sent(self._exchange)
        if self._end is not None:
            self._end.write(frame)
        self._timer = self.world.call_later(_TIMEOUT_MS, self._time_out)

    # -- responses --

    def _read(self, frame: bytes) -> None:
        exchange, self._exchange = self._exchange, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if exchange is None or correlation_id_of(frame) != exchange.correlation_id:
            self.world.fail("order of responses", f"{self.name} received {frame[:12]!r} for {exchange}")
        response = transfer.fetch.parse_response(frame, self.version)
        self.world.ledger.received(exchange, frame, throttle_ms=response.throttle_ms)
        if response.error_code:
            is_unknown = response.error_code == _SESSION_NOT_FOUND
            self._begin_session(_NO_SESSION if is_unknown else (self._session[0], 0))
        else:
            self._has_response = True
            self._check_partitions(response)
            session_id, epoch = self._session
            if not response.session_id:
                self._begin_session(_NO_SESSION)
            else:
                self._session = (session_id if epoch else response.session_id, epoch + 1)
            for topic, partitions in response.topics:
                for partition in partitions:
                    self._take((topic, partition.partition), partition)
        self._go_on()

    def _begin_session(self, session: tuple[int, int]) -> None:
        """Let the next fetch be a full one."""
        self._session = session
        self._forgotten.clear()
        for copy in self._copies.values():
            copy.sent = None

    def _check_partitions(self, response: transfer.FetchResponse) -> None:
        """Check which partitions are answered, as Kafka's FetchSessionHandler does."""
        answered = [(topic, partition.partition) for topic, of_topic in response.topics for partition in of_topic]
        session_id, epoch = self._session
        strangers = [key for key in answered if key not in self._asked]
        if strangers or len(set(answered)) < len(answered):
            self.world.fail("fetch sessions", f"{self.name} asked for {list(self._asked)}, not for {answered}")
        if not epoch and len(answered) < len(self._asked):
            self.world.fail("fetch sessions", f"{self.name} asked in full for {list(self._asked)}, got {answered}")
        if epoch and response.session_id not in (0, session_id):
            self.world.fail("fetch sessions", f"{self.name} is answered in session {response.session_id}")

    def _take(self, key: Key, answer: transfer.FetchedPartition) -> None:
        copy, offset = self._asked[key]
        if self._copies.get(key) is not copy:
            return  # it has had another leader meanwhile
        if answer.error_code:
            copy.backs_off_until_ms = self.world.clock.now_ms + _BACKOFF_MS
            if answer.error_code == _OFFSET_OUT_OF_RANGE:
                log = copy.partition.log
                copy.offset = min(offset, log.end_offset)
            return
        data = answer.records or b""
        for batch in records.parse_batches(data, may_be_cut=True):
            if batch.base_offset != copy.offset:
                self.world.fail(
                    "followers' logs", f"{self.name} has {copy.partition} to {copy.offset}, got {batch.base_offset}"
                )
            copy.offset += batch.record_count
