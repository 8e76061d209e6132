"""A change of a quota that was acknowledged holds, whatever crashes afterwards.

What administrators were told is compared with what they see later. A change whose outcome nobody knows may hold or not.
"""

from typing import Any, ClassVar

from tests.simulation.checks.check import Check

_UNKNOWN_MS = 1e18


class Administration(Check):
    """Compares the administrators' own records at the end."""

    name: ClassVar[str] = "administration"

    def end(self) -> None:
        """Judge each description by the changes before and during it."""
        if not self.world.settings.administers_quotas:
            return
        operations: list[Any] = [
            operation
            for actor in self.world.scenario.actors.values()
            for operation in getattr(actor, "operations", ())
            if operation.begun_ms >= 0
        ]
        changes: dict[tuple[Any, str], list[Any]] = {}
        for operation in operations:
            if operation.quota is not None:
                entity, key, _ = operation.quota
                changes.setdefault((entity, key), []).append(operation)
        for described in operations:
            if described.quota is None and described.kind == "describe" and described.error_code == 0:
                for (entity, key), altered in changes.items():
                    self._judge(described, entity, key, altered)

    def _judge(self, described: Any, entity: Any, key: str, altered: list[Any]) -> None:
        possible: list[float | None] = []
        sure_ms = max(
            [one.begun_ms for one in altered if one.error_code == 0 and one.ended_ms <= described.begun_ms],
            default=-1.0,
        )
        if sure_ms < 0:
            possible.append(None)
        for one in altered:
            # A refused change may have been kept after all, at any time.
            last_ms = one.ended_ms if one.error_code == 0 else _UNKNOWN_MS
            if one.begun_ms <= described.ended_ms and last_ms >= sure_ms:
                possible.append(one.quota[2])
        seen = _value(described.entries, entity, key)
        if seen not in possible:
            text = f"{key} of {entity} is {seen}, and only {possible} can be, because of what was acknowledged"
            self.world.fail(self.name, text)


def _value(entries: Any, entity: Any, key: str) -> float | None:
    for entry in entries:
        if {tuple(part) for part in entry.entity} == {tuple(part) for part in entity}:
            for value in entry.values:
                if value.key == key:
                    return float(value.value)
    return None
