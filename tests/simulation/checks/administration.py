"""A change of a quota that was acknowledged holds, whatever crashes afterwards, and the file wins over the store.

Each description that an administrator gets is compared with all changes before and during it. A change whose outcome
nobody knows may hold or not.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.settings import number
from tests.simulation.stored_quotas import EntityKey, Register, StoredQuotas, Value, entity_key, entity_of
from tests.simulation.wire import administration

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange

_NO_LIMITS: Final = ("user", "client-id", "ip", "enforcement", "shaping")
_NEVER_SET: Final = Register()


class Administration(Check):
    """Judges each response to DescribeClientQuotas."""

    name: ClassVar[str] = "administration"

    def received(self, exchange: "Exchange") -> None:
        """Compare a description with what can be in force."""
        if exchange.api_key != frames.DESCRIBE_QUOTAS or exchange.response is None:
            return
        response = administration.describe_client_quotas.parse_response(exchange.response, exchange.api_version)
        if response.error_code:
            return
        seen: dict[tuple[EntityKey, str], Value] = {
            (entity_key(entry.entity), one.key): one.value for entry in response.entries or () for one in entry.values
        }
        stored: StoredQuotas = self.world.scenario.stored
        since, until = stored.asked.pop(exchange.correlation_id), stored.turn
        files = [_values(quotas) for quotas in stored.files_between(since, until)]
        known = dict.fromkeys((*seen, *stored.registers, *(key for values in files for key in values)))
        for key in known:
            possible = [
                value
                for values in files
                for value in _possible(values, stored.registers.get(key, _NEVER_SET), key, since, until)
            ]
            if seen.get(key) not in possible:
                entity, name = key
                text = f"{name} of {entity} is {seen.get(key)} to {exchange}, and only {possible} can be"
                self.world.fail(self.name, f"{text}, because of what was acknowledged")


def _values(quotas: Quotas) -> dict[tuple[EntityKey, str], float]:
    """Return the limits of a file, and a limit without a name for each entity in it."""
    found: dict[tuple[EntityKey, str], float] = {}
    for rule in quotas:
        entity = entity_of(rule)
        found[entity, ""] = 0.0
        for key, value in rule.items():
            if key not in _NO_LIMITS:
                found[entity, key] = number(value)
    return found


def _possible(
    values: dict[tuple[EntityKey, str], float], register: Register, key: tuple[EntityKey, str], since: int, until: int
) -> Iterator[Value]:
    if (key[0], "") in values:
        yield values.get(key) if key[1] else None
    else:
        yield from register.possible(since, until)
