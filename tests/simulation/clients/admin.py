"""A simulated administrator: creates, grows and deletes topics of its own, and alters and describes client quotas."""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.clients.client import Client
from tests.simulation.clients.profiles import HASTY
from tests.simulation.wire import administration
from tests.simulation.wire.api import AnyApi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.clients.connection import Connection, Setting
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# Java's default.api.timeout.ms.
_OPERATION_TIMEOUT_MS: Final = 60_000.0
_REQUEST_TIMED_OUT: Final = 7
_NOT_CONTROLLER: Final = 41
_THROTTLING_QUOTA_EXCEEDED: Final = 89
_RETRIABLE: Final = frozenset((_REQUEST_TIMED_OUT, _NOT_CONTROLLER, _THROTTLING_QUOTA_EXCEEDED))
UNKNOWN: Final = -1_000
_MOST_PARTITIONS: Final = 8

CREATE: Final = "create"
GROW: Final = "grow"
DELETE: Final = "delete"
ALTER: Final = "alter"
DESCRIBE: Final = "describe"

EntityKey = tuple[tuple[str, str | None], ...]


class QuotaChoice(NamedTuple):
    """A quota that an administrator may set or remove: ``values`` None removes it."""

    entity: EntityKey
    key: str
    values: tuple[float | None, ...]


class Operation:
    """One thing that the administrator wants, until it is done.

    Attributes:
        kind: CREATE, GROW, DELETE, ALTER or DESCRIBE.
        topic: The topic.
        partitions: How many partitions it is to have, or is to get.
        quota: The entity, key and value of an alteration. The value None removes it.
        begun_ms: When the first request was sent.
        is_dry_run: Whether an alteration is only to be validated.
        attempts: How many requests were sent.
        error_code: How it ended: 0, an error, or UNKNOWN if nobody can say whether it was done.
        entries: What a description has shown.
    """

    __slots__ = ("attempts", "begun_ms", "entries", "error_code", "is_dry_run", "kind",
                 "may_be_done", "not_before_ms", "partitions", "quota", "topic")  # fmt: skip

    def __init__(
        self, kind: str, topic: str = "", partitions: int = 0, quota: tuple[EntityKey, str, float | None] | None = None
    ) -> None:
        self.kind = kind
        self.topic = topic
        self.partitions = partitions
        self.quota = quota
        self.is_dry_run = False
        self.begun_ms = -1.0
        self.attempts = 0
        self.error_code = UNKNOWN
        self.entries: Sequence[administration.QuotaEntry] = ()
        self.may_be_done = False
        self.not_before_ms = 0.0


class Admin(Client):
    """Does one operation after the other, each until it is done, refused for good, or too old.

    Attributes:
        operations: Those that have ended, in this order.
        partitions: How many partitions the topics have that this administrator has created.
    """

    def __init__(
        self,
        world: "World",
        setting: "Setting",
        *,
        every_ms: float = 2_000.0,
        kinds: "Sequence[str]" = (CREATE, GROW, DELETE, ALTER, DESCRIBE),
        choices: "Sequence[QuotaChoice]" = (),
        most_operations: int = 1 << 40,
        dry_share: float = 0.0,
        again_share: float = 0.0,
    ) -> None:
        super().__init__(world, setting)
        self.operations: list[Operation] = []
        self.partitions: dict[str, int] = {}
        self._every_ms = every_ms
        self._kinds = [kind for kind in kinds if kind != ALTER or choices]
        self._choices = choices
        self._left = most_operations
        self._dry_share = dry_share
        self._again_share = again_share  # how often it creates a topic once more, which is refused
        self._made = 0
        self._next_ms = 0.0
        self._current: Operation | None = None
        self._is_waiting = False

    def work(self) -> None:
        """Begin the next operation when it is due, or go on with the current one."""
        now_ms = self.world.clock.now_ms
        if self._current is None:
            if not self._left:
                return
            if now_ms < self._next_ms:
                self.wake_in(self._next_ms - now_ms)
                return
            self._left -= 1
            self._next_ms = now_ms + self._every_ms * self.random.uniform(0.2, 1.8)
            self._current = self._draw()
        operation = self._current
        if self._is_waiting:
            return
        if operation.begun_ms >= 0 and now_ms - operation.begun_ms > _OPERATION_TIMEOUT_MS:
            self._end(operation, UNKNOWN if operation.may_be_done else _REQUEST_TIMED_OUT)
        elif now_ms < operation.not_before_ms:
            self.wake_in(operation.not_before_ms - now_ms)
        else:
            connection = self._connection(operation)
            if connection is not None:
                self._send(connection, operation)

    def needs_metadata(self) -> bool:
        """Return whether the administrator looks for the controller. One in haste asks whoever it reaches."""
        return self.profile is not HASTY

    def stop(self, patience_ms: float = 5_000.0) -> None:
        """Give the current operation up, unless its response is due."""
        if self._current is not None and not self._is_waiting and not self.is_stopping:
            self._end(self._current, UNKNOWN if self._current.may_be_done else _REQUEST_TIMED_OUT)
        super().stop(patience_ms)

    def _draw(self) -> Operation:
        random = self.random
        kind = random.choice(self._kinds)
        if kind in (GROW, DELETE) and not self.partitions:
            kind = CREATE
        if kind == ALTER:
            choice = random.choice(self._choices)
            operation = Operation(ALTER, quota=(choice.entity, choice.key, random.choice(choice.values)))
            operation.is_dry_run = random.random() < self._dry_share
            return operation
        if kind == DESCRIBE:
            return Operation(DESCRIBE)
        if kind == CREATE:
            if self.partitions and random.random() < self._again_share:
                topic = random.choice(list(self.partitions))
                return Operation(CREATE, topic, self.partitions[topic])
            self._made += 1
            return Operation(CREATE, f"{self.setting.name}-{self._made}", random.randint(1, _MOST_PARTITIONS))
        topic = random.choice(list(self.partitions))
        return Operation(kind, topic, self.partitions[topic] + random.randint(1, _MOST_PARTITIONS))

    def _connection(self, operation: Operation) -> "Connection | None":
        if operation.kind == DESCRIBE or self.controller < 0:
            return self.any_connection()
        return self.connection_to(self.controller)

    # -- requests --

    def _send(self, connection: "Connection", operation: Operation) -> None:
        if operation.begun_ms < 0:
            operation.begun_ms = self.world.clock.now_ms
        operation.attempts += 1
        self._is_waiting = True
        api, fields = _request(operation)
        self.ask(connection, api, lambda result, exchange: self._answered(result, exchange, operation),
                 lambda _exchange: self._unanswered(operation), detail=operation, **fields)  # fmt: skip

    # -- responses --

    def _unanswered(self, operation: Operation) -> None:
        self._is_waiting = False
        operation.may_be_done = True
        if self.is_stopping:
            self._end(operation, UNKNOWN)
        else:
            operation.not_before_ms = self.world.clock.now_ms + self.retry_backoff_ms(operation.attempts - 1)

    def _answered(self, result: Any, exchange: "Exchange", operation: Operation) -> None:
        self._is_waiting = False
        if operation.kind == DESCRIBE:
            operation.entries = result.entries or ()
            error = result.error_code
        else:
            rows = result.entries if operation.kind == ALTER else result.topics
            if len(rows) != 1:
                self.world.fail("answers", f"{exchange!r} asks for one thing, and is answered for {len(rows)}")
            error = rows[0].error_code
        if error in _RETRIABLE and not self.is_stopping:
            is_refused = error == _THROTTLING_QUOTA_EXCEEDED
            wait_ms = float(result.throttle_ms) if is_refused else self.retry_backoff_ms(operation.attempts - 1)
            operation.not_before_ms = self.world.clock.now_ms + wait_ms
            operation.may_be_done = operation.may_be_done or error == _REQUEST_TIMED_OUT
            if not is_refused:
                self.refresh_metadata()
            return
        is_unknown = operation.may_be_done and error != 0
        self._end(operation, UNKNOWN if is_unknown else error)

    def _end(self, operation: Operation, error_code: int) -> None:
        self._current = None
        operation.error_code = error_code
        self.operations.append(operation)
        if operation.kind in (CREATE, GROW) and error_code in (0, UNKNOWN):
            self.partitions[operation.topic] = operation.partitions
        elif operation.kind == DELETE and error_code in (0, UNKNOWN):
            self.partitions.pop(operation.topic, None)


def _request(operation: Operation) -> tuple[AnyApi, dict[str, Any]]:
    """Return the API of an operation, and the fields of its request."""
    topic, number = operation.topic, operation.partitions
    if operation.kind == CREATE:
        return administration.create_topics, {"topics": [administration.NewTopic(topic, number, 1)]}
    if operation.kind == GROW:
        return administration.create_partitions, {"topics": [administration.GrownTopic(topic, number)]}
    if operation.kind == DELETE:
        return administration.delete_topics, {"topics": [administration.DoomedTopic(topic)]}
    if operation.kind == DESCRIBE or operation.quota is None:
        return administration.describe_client_quotas, {}
    entity, key, value = operation.quota
    alteration = administration.Alteration(
        [administration.EntityPart(*part) for part in entity],
        [administration.Operation(key, value or 0.0, remove=value is None)],
    )
    return administration.alter_client_quotas, {"entries": [alteration], "validate_only": operation.is_dry_run}
