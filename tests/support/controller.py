"""A simulated Kafka controller, which creates, extends and deletes topics.

The library kio reads and writes its frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, get_args
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.header import read_request_head
from tests.protocol.support import kio_messages
from tests.protocol.support.kio_messages import Untyped

_LIMIT = 1 << 30


def element(message: Untyped, name: str) -> Untyped:
    """Return the class of the elements of the array field ``name``."""
    (field,) = (field for field in fields(message) if field.name == name)
    kinds = [kind for kind in get_args(field.type) if get_args(kind)] or [field.type]
    return get_args(kinds[0])[0]


def filled(message: Untyped, **values: Any) -> Untyped:  # noqa: ANN401 - any field
    return kio_messages.example(message, values, array_length=0, tagged=False)


def create(*topics: tuple[str, int], version: int = 7, validate_only: bool = False) -> bytes:
    cls = kio_messages.request_class(ApiKey.CREATE_TOPICS, version)
    topic = element(cls, "topics")
    made = tuple(filled(topic, name=name, num_partitions=count, replication_factor=1) for name, count in topics)
    return kio_messages.request_frame(filled(cls, topics=made, validate_only=validate_only))


def grow(*topics: tuple[str, int], version: int = 3) -> bytes:
    """Return a CreatePartitions request with the new number of partitions of each topic."""
    cls = kio_messages.request_class(ApiKey.CREATE_PARTITIONS, version)
    topic = element(cls, "topics")
    grown = tuple(filled(topic, name=name, count=count, assignments=None) for name, count in topics)
    return kio_messages.request_frame(filled(cls, topics=grown, validate_only=False))


def delete(*topics: str | UUID, version: int = 6) -> bytes:
    cls = kio_messages.request_class(ApiKey.DELETE_TOPICS, version)
    if version < 6:
        return kio_messages.request_frame(filled(cls, topic_names=topics))
    topic = element(cls, "topics")
    named = tuple(
        filled(topic, name=one, topic_id=None) if isinstance(one, str) else filled(topic, name=None, topic_id=one)
        for one in topics
    )
    return kio_messages.request_frame(filled(cls, topics=named))


class Controller:
    """The controller.

    ``topics`` has the number of partitions of each topic, and ``asked`` the API of each request.
    """

    def __init__(self, **topics: int) -> None:
        self.topics = topics
        self.ids = {name: UUID(int=number + 1) for number, name in enumerate(topics)}
        self.asked: list[ApiKey] = []

    def answers(self, data: bytes) -> bytes:
        """Execute the requests in ``data``, and return the responses."""
        responses = b""
        while data:
            head = read_request_head(data, 0, _LIMIT)
            assert head is not None
            end = 4 + head.size_bytes
            cls = kio_messages.request_class(head.api_key, head.api_version)
            message = entity_reader(cls)(memoryview(data)[head.body : end].tobytes(), 0)[0]
            self.asked.append(ApiKey(head.api_key))
            made = self._answer(head.api_key, head.api_version, message)
            responses += kio_messages.response_frame(made, correlation_id=head.correlation_id)
            data = data[end:]
        return responses

    def _answer(self, api_key: int, version: int, message: Untyped) -> Untyped:
        cls = kio_messages.response_class(api_key, version)
        none = {"throttle_time": kio_messages.milliseconds(0)}
        if api_key == ApiKey.METADATA:
            return filled(cls, **none, topics=tuple(self._described(cls, message)))
        if api_key == ApiKey.CREATE_TOPICS:
            return filled(cls, **none, topics=tuple(self._created(cls, message, version)))
        if api_key == ApiKey.CREATE_PARTITIONS:
            return filled(cls, **none, results=tuple(self._grown(cls, message)))
        return filled(cls, **none, responses=tuple(self._deleted(cls, message, version)))

    def _created(self, cls: Untyped, message: Untyped, version: int) -> Iterable[Untyped]:
        for topic in message.topics:
            count = 3 if topic.num_partitions == -1 else topic.num_partitions
            error = ErrorCode.topic_already_exists if topic.name in self.topics else ErrorCode.none
            if error is ErrorCode.none and not message.validate_only:
                self.topics[topic.name] = count
            details = {"num_partitions": count, "replication_factor": 1} if version >= 5 else {}
            yield filled(element(cls, "topics"), name=topic.name, error_code=error, **details)

    def _grown(self, cls: Untyped, message: Untyped) -> Iterable[Untyped]:
        for topic in message.topics:
            self.topics[topic.name] = topic.count
            yield filled(element(cls, "results"), name=topic.name, error_code=ErrorCode.none)

    def _deleted(self, cls: Untyped, message: Untyped, version: int) -> Iterable[Untyped]:
        asked = [(name, None) for name in message.topic_names] if version < 6 else self._named(message)
        for name, topic_id in asked:
            error = ErrorCode.none if self.topics.pop(name, 0) else ErrorCode.unknown_topic_or_partition
            more = {"topic_id": topic_id} if version >= 6 else {}
            yield filled(element(cls, "responses"), name=name or None, error_code=error, **more)

    def _described(self, cls: Untyped, message: Untyped) -> Iterable[Untyped]:
        topic_class = element(cls, "topics")
        # If any topic of the request has an id, a broker ignores the topics that have only a name.
        has_ids = any(hasattr(topic, "topic_id") and topic.topic_id for topic in message.topics)
        for topic in message.topics:
            if has_ids and not topic.topic_id:
                continue
            name = topic.name or self._name_of(topic.topic_id)
            count = self.topics.get(name, 0)
            error = ErrorCode.none if count else ErrorCode.unknown_topic_or_partition
            partitions = tuple(filled(element(topic_class, "partitions"), partition_index=n) for n in range(count))
            more = {"topic_id": topic.topic_id or self.ids.get(name)} if hasattr(topic, "topic_id") else {}
            yield filled(topic_class, error_code=error, name=name or None, partitions=partitions, **more)

    def _named(self, message: Untyped) -> list[tuple[str, UUID | None]]:
        return [
            (topic.name or self._name_of(topic.topic_id), topic.topic_id or self.ids.get(topic.name))
            for topic in message.topics
        ]

    def _name_of(self, topic_id: UUID) -> str:
        return next((name for name, known in self.ids.items() if known == topic_id), "")
