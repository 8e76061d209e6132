"""Builds and reads Fetch requests and responses with two codecs."""

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from tests.protocol.support import kafka_python_messages, kio_messages
from tests.protocol.support.kio_messages import Untyped

FETCH: Final = 1
NEWEST: Final = 18
_FIRST_TOPIC_ID: Final = 13
_TOPICS: Final = {"request": "topics", "response": "responses"}
_DURATIONS: Final = {"max_wait_ms": "max_wait", "throttle_time_ms": "throttle_time"}  # names in kio


class Element(NamedTuple):
    """A partition, and the name or the id of its topic."""

    topic: bytes
    partition: Untyped


class Kio:
    """Builds messages with kio, which knows Fetch from v4 on."""

    def __init__(self, kind: str, version: int) -> None:
        find = kio_messages.request_class if kind == "request" else kio_messages.response_class
        self.kind, self.version = kind, version
        self.cls = find(FETCH, version)
        self.topic_class = self.cls.__dataclass_fields__[_TOPICS[kind]].type.__args__[0]
        self.partition_class = self.topic_class.__dataclass_fields__["partitions"].type.__args__[0]

    def __repr__(self) -> str:
        return f"kio-{self.kind}-v{self.version}"

    def generated(self, random: Random) -> Untyped:
        return kio_messages.generated(self.cls, random)

    def example(self, array_length: int) -> Untyped:
        return kio_messages.example(self.cls, array_length=array_length)

    def frame(self, message: Untyped, client_id: str | None = None) -> bytes:
        if self.kind == "response":
            return kio_messages.response_frame(message)
        return kio_messages.request_frame(message, client_id=client_id)

    def body_bytes(self, message: Untyped) -> int:
        return len(kio_messages.encode(message))

    def get(self, entity: Untyped, name: str, default: object) -> Any:  # noqa: ANN401 - as many types as Kafka has
        if name in _DURATIONS:
            return round(getattr(entity, _DURATIONS[name]).total_seconds() * 1_000)
        value = getattr(entity, name, default)
        return value.value if isinstance(value, ErrorCode) else value

    def changed(self, entity: Untyped, **values: object) -> Untyped:
        return replace(entity, **self._named(type(entity), values))

    def partition(self, **values: object) -> Untyped:
        return self.partition_class(**self._named(self.partition_class, values))

    def topic(self, topic: bytes, partitions: list[Untyped]) -> Untyped:
        return self.topic_class(**_identity(topic, self.version), partitions=tuple(partitions))

    def empty_array(self) -> tuple[()]:
        return ()

    def _named(self, cls: Untyped, values: dict[str, Any]) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for name, value in values.items():
            if name in _DURATIONS:
                named[_DURATIONS[name]] = kio_messages.milliseconds(value)
            elif name in cls.__dataclass_fields__:
                # Arrays of kio are tuples.
                as_array = tuple(value) if isinstance(value, list) else value
                named[name] = ErrorCode(value) if name == "error_code" else as_array
        return named


class KafkaPython:
    """Builds messages with kafka-python, which knows all versions."""

    def __init__(self, kind: str, version: int) -> None:
        self.kind, self.version = kind, version
        self.cls = next(cls for cls, _ in kafka_python_messages.messages(kind) if cls.API_KEY == FETCH)
        self.topics_field = self.cls.fields[_TOPICS[kind]]
        self.partitions_field = self.topics_field.fields["partitions"]

    def __repr__(self) -> str:
        return f"kafka_python-{self.kind}-v{self.version}"

    def generated(self, random: Random) -> Untyped:
        return kafka_python_messages.generated(self.cls, self.version, random)

    def example(self, array_length: int) -> Untyped:
        return kafka_python_messages.example(self.cls, self.version, array_length=array_length)

    def frame(self, message: Untyped, client_id: str | None = None) -> bytes:
        if self.kind == "response":
            return kafka_python_messages.response_frame(message)
        return kafka_python_messages.request_frame(message, client_id=client_id)

    def body_bytes(self, message: Untyped) -> int:
        return len(message.encode())

    def get(self, entity: Untyped, name: str, default: object) -> Any:  # noqa: ANN401 - as many types as Kafka has
        field = entity.fields.get(name)
        return getattr(entity, name) if field is not None and field.for_version_q(self.version) else default

    def changed(self, entity: Untyped, **values: object) -> Untyped:
        after = copy(entity)
        for name, value in values.items():
            if self.get(entity, name, self) is not self:
                setattr(after, name, value)
        return after

    def partition(self, **values: object) -> Untyped:
        fields = self.partitions_field.fields
        known = {name: value for name, value in values.items() if fields[name].for_version_q(self.version)}
        return self.partitions_field.data_class(version=self.version, **known)

    def topic(self, topic: bytes, partitions: list[Untyped]) -> Untyped:
        return self.topics_field.data_class(
            version=self.version, **_identity(topic, self.version), partitions=partitions
        )

    def empty_array(self) -> list[Untyped]:
        return []


Codec = Kio | KafkaPython


def codecs(kind: str) -> list[Codec]:
    """Return both codecs in each of their versions. ``kind`` is "request" or "response"."""
    ours: list[Codec] = [KafkaPython(kind, version) for version in range(NEWEST + 1)]
    return [*ours, *(Kio(kind, version) for version in range(4, NEWEST + 1))]


def elements(codec: Codec, message: Untyped) -> list[Element]:
    return [
        Element(_topic_bytes(topic, codec.version), partition)
        for topic in getattr(message, _TOPICS[codec.kind])
        for partition in topic.partitions
    ]


def regrouped(codec: Codec, message: Untyped, chosen: Iterable[Element], **values: object) -> Untyped:
    """Return a copy with other partitions and values. Adjacent partitions of one topic share a topic element."""
    topics = [
        codec.topic(topic, [element.partition for element in neighbours])
        for topic, neighbours in groupby(chosen, itemgetter(0))
    ]
    return codec.changed(message, **{_TOPICS[codec.kind]: topics}, **values)


def _topic_bytes(topic: Untyped, version: int) -> bytes:
    if version < _FIRST_TOPIC_ID:
        return bytes(topic.topic.encode())
    return bytes(16) if topic.topic_id is None else bytes(topic.topic_id.bytes)


def _identity(topic: bytes, version: int) -> dict[str, Any]:
    return {"topic": topic.decode()} if version < _FIRST_TOPIC_ID else {"topic_id": UUID(bytes=topic)}
