"""What administrators have stored through the proxy, as its clients may know it, and which quotas can be in force.

A change of a quota takes effect at some time between the request and its response. If the response never comes, or
says that the outcome is unknown, the change may take effect as long as the process lives, or at the next start.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.entities import DEFAULT
from tests.simulation.wire import administration

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# An entity as the requests name it, in order of its types. The name None is the default.
EntityKey = tuple[tuple[str, str | None], ...]
Value = float | None

_STORAGE_ERROR: Final = 56
# Errors that promise that nothing is changed.
_REFUSALS: Final = frozenset({31, 42, 44, 89})  # no right, invalid, against the policy, too many changes
_OPEN_OUTCOME: Final = "may apply"
_TYPES: Final = ("client-id", "ip", "user")


class Write:
    """A change of one key of one entity. Its turns say what came before and after it.

    Attributes:
        value: The new limit, or None if it is removed.
        begun: The turn in which the request was sent.
        ended: The turn after which it takes effect no more.
        is_acknowledged: Whether the response said that it is stored.
    """

    __slots__ = ("begun", "ended", "is_acknowledged", "value")

    def __init__(self, value: Value, begun: int) -> None:
        self.value = value
        self.begun = begun
        self.ended = inf
        self.is_acknowledged = False


class Register:
    """One key of one entity: all changes that were not refused."""

    __slots__ = ("writes",)

    def __init__(self) -> None:
        self.writes: list[Write] = []

    def possible(self, since: int, until: int) -> list[Value]:
        """Return the values that the key may have had at some turn of these."""
        sure = max((one.begun for one in self.writes if one.is_acknowledged and one.ended <= since), default=-1)
        found: dict[Value, None] = {} if sure >= 0 else {None: None}
        for one in self.writes:
            if one.begun <= until and one.ended >= sure:
                found[one.value] = None
        return list(found)


def entity_key(parts: Iterable[tuple[str, str | None]]) -> EntityKey:
    """Return the parts of an entity in the order of their types."""
    return tuple(sorted(((kind, name) for kind, name in parts), key=lambda part: part[0]))


def entity_of(rule: Mapping[str, object]) -> EntityKey:
    """Return the entity of a rule of the configuration file."""
    names = ((kind, rule[kind]) for kind in _TYPES if kind in rule)
    return tuple((kind, None if name == DEFAULT else str(name)) for kind, name in names)


class StoredQuotas(Check):
    """Follows the requests of administrators, and tells the other checks which rules may be in force.

    Attributes:
        registers: What was changed, by entity and key.
        files: The rules of each file that was in force, and the turn since which it was. The last one is now.
        asked: The turn in which a request to describe quotas was sent, by correlation id.
        turn: Counts what is sent and answered.
    """

    name: ClassVar[str] = "stored quotas"

    def __init__(self, world: "World", *, has_store: bool, others: Sequence[Check]) -> None:
        super().__init__(world)
        self.registers: dict[tuple[EntityKey, str], Register] = {}
        self.files: list[tuple[int, Quotas]] = []
        self.asked: dict[int, int] = {}
        self.turn = 0
        self._has_store = has_store
        self._others = others
        # The changes without a response, and those of them that a process of before has taken or not.
        self._open: dict[int, list[list[tuple[Register, Write]]]] = {}
        self._told: tuple[Quotas, ...] = ()

    # -- events --

    def file_applied(self, quotas: Quotas) -> None:
        """Another file is in force from now on. Its rules hide stored rules of the same entities."""
        self.turn += 1
        self.files.append((self.turn, quotas))
        self._told = ()
        self._tell()

    def sent(self, exchange: "Exchange") -> None:
        """A change may take effect from now on."""
        if exchange.api_key == frames.DESCRIBE_QUOTAS:
            self.turn += 1
            self.asked[exchange.correlation_id] = self.turn
        if exchange.api_key != frames.ALTER_QUOTAS or not self._has_store:
            return
        self.turn += 1
        request = administration.alter_client_quotas.parse_request(exchange.request)
        if request.validate_only:
            return
        entries: list[list[tuple[Register, Write]]] = []
        for entry in request.entries:
            entity = entity_key(entry.entity)
            writes = []
            for operation in entry.operations:
                register = self.registers.setdefault((entity, operation.key), Register())
                write = Write(None if operation.remove else operation.value, self.turn)
                register.writes.append(write)
                writes.append((register, write))
            entries.append(writes)
        self._open[exchange.correlation_id] = entries
        self._tell()

    def received(self, exchange: "Exchange") -> None:
        """A change is acknowledged or refused, or its outcome is unknown."""
        if exchange.api_key != frames.ALTER_QUOTAS or exchange.response is None:
            return
        self.turn += 1
        response = administration.alter_client_quotas.parse_response(exchange.response, exchange.api_version)
        if not self._has_store:
            if any(result.error_code == 0 for result in response.entries):
                self.world.fail(self.name, f"{exchange} has changed a quota, and there is no store")
            return
        entries = self._open.pop(exchange.correlation_id, None)
        if entries is None:  # a dry run
            return
        for writes, result in zip(entries, response.entries, strict=True):
            for register, write in writes:
                self._end(register, write, result)
        self._tell()

    def _end(self, register: Register, write: Write, result: administration.AlteredEntity) -> None:
        is_kept_back = result.error_code == _STORAGE_ERROR and _OPEN_OUTCOME not in (result.error_message or "")
        if result.error_code in _REFUSALS or is_kept_back:
            register.writes.remove(write)
            return
        # A later change is taken only when this one has taken effect, or never will.
        write.ended = self.turn
        write.is_acknowledged = result.error_code == 0

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """What this process has not done it never will."""
        self.turn += 1
        for entries in self._open.values():
            for writes in entries:
                for _, write in writes:
                    write.ended = min(write.ended, self.turn)

    # -- what can be in force --

    def files_between(self, since: int, until: int) -> Iterator[Quotas]:
        """Yield the rules of each file that was in force at some turn of these."""
        for index, (begun, quotas) in enumerate(self.files):
            ended = self.files[index + 1][0] if index + 1 < len(self.files) else inf
            if begun <= until and ended >= since:
                yield quotas

    def _tell(self) -> None:
        if not self.files:
            return
        told = tuple(self._variants())
        if told != self._told:
            self._told = told
            self.ledger.book.change(told, self.world.settings, self.world.clock.now_ms)
            for check in self._others:
                check.rules_changed(*told)

    def _variants(self) -> Iterator[Quotas]:
        """Yield lists of rules, so that for each kind each set of entities that can have a limit is in one of them.

        Where a limit has several possible values, it is the largest. In one more set all are the smallest.
        """
        quotas = self.files[-1][1]
        of_file = {entity_of(rule) for rule in quotas}
        certain: dict[EntityKey, dict[str, float]] = {}
        options: dict[str, list[list[tuple[EntityKey, Value]]]] = {}
        smallest: dict[str, list[tuple[EntityKey, Value]]] = {}
        for (entity, key), register in self.registers.items():
            if entity in of_file:
                continue
            values = register.possible(self.turn, self.turn)
            limits = [value for value in values if value is not None]
            if len(values) > 1:
                largest: list[Value] = [max(limits), None] if None in values else [max(limits)]
                options.setdefault(key, []).append([(entity, value) for value in largest])
                smallest.setdefault(key, []).append((entity, min(limits)))
            elif limits:
                certain.setdefault(entity, {})[key] = limits[0]
        chosen = {key: [*product(*lists), smallest[key]] for key, lists in options.items()}
        for number in range(max(map(len, chosen.values()), default=1)):
            rules = {entity: dict(limits) for entity, limits in certain.items()}
            for key, choices in chosen.items():
                for entity, value in choices[number % len(choices)]:
                    if value is not None:
                        rules.setdefault(entity, {})[key] = value
            yield [*quotas, *(_rule(entity, limits) for entity, limits in rules.items())]


def _rule(entity: EntityKey, limits: Mapping[str, float]) -> Mapping[str, object]:
    names = {kind: DEFAULT if name is None else name for kind, name in entity}
    return {**names, **limits}
