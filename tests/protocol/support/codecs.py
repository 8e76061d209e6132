"""Builds and reads messages of any API with two codecs.

Fields have the names of Kafka's JSON files. A null topic id is None or all zeros.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from random import Random
from types import UnionType
from typing import Any, get_args
from uuid import UUID

from kio.schema.errors import ErrorCode

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION
from kafka_quota_proxy.protocol.messages import MESSAGES
from tests.protocol.support import broker_lists, kafka_python_messages, kio_messages
from tests.protocol.support.kio_messages import NOTHING, Untyped

NULL_UUID = UUID(int=0)


class Kio:
    """Builds messages with kio, which knows the versions of Kafka 4."""

    def __init__(self, kind: str, api_key: int, version: int) -> None:
        find = kio_messages.request_class if kind == "request" else kio_messages.response_class
        self.kind, self.api_key, self.version = kind, api_key, version
        self.cls = find(api_key, version)

    def __repr__(self) -> str:
        return f"kio-{self.api_key}-{self.kind}-v{self.version}"

    def generated(self, random: Random) -> Untyped:
        return kio_messages.generated(self.cls, random)

    def frame(self, message: Untyped, *, correlation_id: int = 7, client_id: str | None = None) -> bytes:
        if self.kind == "response":
            return kio_messages.response_frame(message, correlation_id=correlation_id)
        return kio_messages.request_frame(message, correlation_id=correlation_id, client_id=client_id)

    def decoded(self, frame: bytes) -> Untyped:
        return broker_lists.decoded(frame, self.cls)

    def has(self, path: str) -> bool:
        """Return whether this version has the field at ``path``, such as ``topics.partitions``."""
        *parents, name = path.split(".")
        return self._name(name) in self._class(parents).__dataclass_fields__

    def get(self, entity: Untyped, name: str, default: object = None) -> Any:  # noqa: ANN401 - as many types as Kafka has
        value: Any = getattr(entity, self._name(name), default)
        if name == "throttle_time_ms" and value is not default:
            return round(value.total_seconds() * 1_000)
        return value.value if isinstance(value, ErrorCode) else value

    def changed(self, entity: Untyped, **values: object) -> Untyped:
        return replace(entity, **self._known(type(entity), values))

    def element(self, path: str, **values: object) -> Untyped:
        """Return an element of the array at ``path``, such as ``topics.partitions``."""
        cls = self._class(path.split("."))
        return cls(**self._known(cls, values))

    def _class(self, path: list[str]) -> Untyped:
        cls = self.cls
        for name in path:
            kind = cls.__dataclass_fields__[name].type
            if isinstance(kind, UnionType):
                kind = next(argument for argument in get_args(kind) if argument is not type(None))
            cls = get_args(kind)[0]
        return cls

    def _name(self, name: str) -> str:
        return {"throttle_time_ms": "throttle_time", "timeout_ms": "timeout"}.get(name, name)

    def _known(self, cls: Untyped, values: Mapping[str, object]) -> dict[str, Any]:
        known: dict[str, Any] = {}
        for name, value in values.items():
            if self._name(name) not in cls.__dataclass_fields__:
                continue
            if name.endswith("_ms") and isinstance(value, int):
                known[self._name(name)] = kio_messages.milliseconds(value)
            elif name.endswith("error_code") and isinstance(value, int):
                known[name] = ErrorCode(value)
            else:
                known[name] = tuple(value) if isinstance(value, list) else value
        return known


class KafkaPython:
    """Builds messages with kafka-python, which knows all versions."""

    def __init__(self, kind: str, api_key: int, version: int) -> None:
        self.kind, self.api_key, self.version = kind, api_key, version
        self.cls = next(cls for cls, _ in kafka_python_messages.messages(kind) if api_key == cls.API_KEY)

    def __repr__(self) -> str:
        return f"kafka_python-{self.api_key}-{self.kind}-v{self.version}"

    def generated(self, random: Random, values: Mapping[str, Any] = NOTHING) -> Untyped:
        return kafka_python_messages.generated(self.cls, self.version, random, values)

    def frame(self, message: Untyped, *, correlation_id: int = 7, client_id: str | None = None) -> bytes:
        if self.kind == "response":
            return kafka_python_messages.response_frame(message, correlation_id=correlation_id)
        return kafka_python_messages.request_frame(message, correlation_id=correlation_id, client_id=client_id)

    def made(self, **values: object) -> Untyped:
        """Return a message with these values, except those that this version lacks."""
        known = {name: value for name, value in values.items() if self.has(name)}
        return self.cls(version=self.version, **known)

    def has(self, path: str) -> bool:
        *parents, name = path.split(".")
        fields = self._fields(parents)
        return name in fields and bool(fields[name].for_version_q(self.version))

    def get(self, entity: Untyped, name: str, default: object = None) -> Any:  # noqa: ANN401 - as many types as Kafka has
        field = entity.fields.get(name)
        return getattr(entity, name) if field is not None and field.for_version_q(self.version) else default

    def changed(self, entity: Untyped, **values: object) -> Untyped:
        after = copy(entity)
        for name, value in values.items():
            if self.get(entity, name, self) is not self:
                setattr(after, name, value)
        return after

    def element(self, path: str, **values: object) -> Untyped:
        *parents, name = path.split(".")
        field = self._fields(parents)[name]
        known = {
            key: value
            for key, value in values.items()
            if key in field.fields and field.fields[key].for_version_q(self.version)
        }
        return field.data_class(version=self.version, **known)

    def _fields(self, path: list[str]) -> Untyped:
        fields = self.cls.fields
        for name in path:
            fields = fields[name].fields
        return fields


Codec = Kio | KafkaPython


def codecs(kind: str, api_key: int, first_version: int = 0) -> list[Codec]:
    """Return both codecs in each of their versions. ``kind`` is "request" or "response"."""
    olds = [KafkaPython(kind, api_key, version) for version in range(first_version, HIGHEST_VERSION[api_key] + 1)]
    known = [version for key, version in kio_messages.api_versions() if key == api_key and version >= first_version]
    return [*olds, *(Kio(kind, api_key, version) for version in known)]


def every_message() -> list[Codec]:
    """Return a codec for each message of the proxy's table in each version: kio, or kafka-python for old versions."""
    found: list[Codec] = []
    for key, kind in MESSAGES:
        if kind == "front":
            continue
        news = [version for api_key, version in kio_messages.api_versions() if api_key == key]
        olds = [version for cls, version in kafka_python_messages.messages(kind) if key == cls.API_KEY]
        found += [KafkaPython(kind, key, version) for version in olds if version not in news]
        found += [Kio(kind, key, version) for version in news]
    return found


def uuid_of(value: UUID | None) -> UUID:
    return value or NULL_UUID
