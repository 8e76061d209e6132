"""Sets a broker's own quotas within milliseconds, with raw frames. Kafka's own command takes a second."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from kio.schema.alter_client_quotas.v0 import AlterClientQuotasResponse
from kio.serial import entity_reader

from tests.end_to_end.support.frames import RawClient, string
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import wait_until

DEFAULT: Final = "<default>"
_DESCRIBE: Final = 48
_ALTER: Final = 49
_EXACT_MATCH: Final = 0
_read_answer: Any = entity_reader(AlterClientQuotasResponse)
# No test uses this key, so it does not affect measurements.
_BARRIER_KEY: Final = "controller_mutation_rate"
_BARRIER_USER: Final = "barrier"


class Entity(NamedTuple):
    """The entity of a quota. Each part is a name, ``DEFAULT``, or None if it is not part of the entity."""

    user: str | None
    client_id: str | None


Quotas = Mapping[Entity, Mapping[str, float]]
_BARRIER: Final = Entity(_BARRIER_USER, None)


class BrokerQuotas:
    """The quotas of a cluster with one broker. The ``with`` block begins and ends without quotas."""

    def __init__(self, kafka: Kafka) -> None:
        self._port = kafka.listener(DIRECT).port
        self._in_force: dict[tuple[Entity, str], float] = {}
        self._barrier = 0

    def __enter__(self) -> Self:
        self._client = RawClient(self._port, client_id="admin")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.replace({})
        finally:
            self._client.close()

    def replace(self, quotas: Quotas) -> None:
        """Replace all quotas, and wait until the broker enforces the new ones."""
        wanted = {(entity, key): value for entity, limits in quotas.items() for key, value in limits.items()}
        changes: dict[tuple[Entity, str], float | None] = dict.fromkeys(self._in_force.keys() - wanted.keys())
        changes |= wanted.items() - self._in_force.items()
        self._in_force = wanted
        # A broker describes a change just before it enforces the change. When it describes the next one, it enforces
        # the first.
        self._alter(changes)
        self._alter({})

    def _alter(self, changes: Mapping[tuple[Entity, str], float | None]) -> None:
        """Make the changes, and wait until the broker describes them. None removes a quota."""
        self._barrier += 1
        changes = {**changes, (_BARRIER, _BARRIER_KEY): float(self._barrier)}
        by_entity: dict[Entity, list[bytes]] = {}
        for (entity, key), value in changes.items():
            change = string(key) + struct.pack(">d?", value or 0.0, value is None)
            by_entity.setdefault(entity, []).append(change)
        entries = [_entity(entity) + _array(operations) for entity, operations in by_entity.items()]
        answer = self._client.ask(_ALTER, 0, _array(entries) + b"\0").body
        answered, _ = _read_answer(answer, 0)
        refused = [entry for entry in answered.entries if entry.error_code]
        assert not refused, refused
        wait_until(self._describes_barrier, timeout_s=10, what="the broker describes its new quotas", poll_s=0.001)

    def _describes_barrier(self) -> bool:
        wanted = string("user") + struct.pack(">b", _EXACT_MATCH) + string(_BARRIER_USER)
        answer = self._client.ask(_DESCRIBE, 0, _array([wanted]) + b"\1").body
        return answer.endswith(string(_BARRIER_KEY) + struct.pack(">d", self._barrier))


def _entity(entity: Entity) -> bytes:
    parts = {"user": entity.user, "client-id": entity.client_id}
    return _array(
        [
            string(kind) + string(None if name == DEFAULT else name)
            for kind, name in parts.items()
            if name is not None
        ]
    )  # fmt: skip


def _array(items: list[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)
