"""A user with more than half of the costs in the fair call queue gets one turn of 15 while others wait.

Each request that is answered costs 1, and costs are halved every 5 s. Who has at least half of all costs is at the
lowest level until the next halving, and everybody else is at a higher one. The costs are halved each 5 s of a process,
or somewhat later. So the check takes the least that the costs of one user, and the most that those of all others can
be, and judges nothing in the moment of a halving.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Quotas
from tests.simulation.checks.slots import NOBODY, TURNS, Slots, first_waiting, is_free

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange, Line
    from tests.simulation.world import World

_PERIOD_MS: Final = 5_000.0
# How late the costs may be halved after each whole period of the process.
_LATE_MS: Final = 1_300.0
_FORGOTTEN_MS: Final = 60_000.0
_SURE: Final = 0.52
# A request that arrives in the moment in which the slot is given away comes too late for it.
_MOMENT_MS: Final = 20.0
# Any 15 turns have one of the lowest level, and so two may be close. One more may be at the edge of what is known.
_MOST_TURNS: Final = 3.0


class _Account:
    """The costs of the users at one broker, and who surely has more than half of them.

    Attributes:
        since_ms: Since when the levels are those of now.
        old: Who had costs when they were halved last. The level of all others changes with each request.
        turns: Those of the heaviest user while others wait, less its share of all turns.
    """

    __slots__ = ("_answered", "_halved_ms", "_least", "_most_of_others", "_started_ms", "_user", "old", "turns")

    def __init__(self, started_ms: float) -> None:
        self._started_ms = started_ms
        self._answered: list[tuple[float, str, bool]] = []  # when, whose, and whether it surely costs something
        self._halved_ms = started_ms
        self.old: set[str] = set()
        self._user = ""
        self._least = self._most_of_others = 0.0
        self.turns = 0.0

    @property
    def since_ms(self) -> float:
        """Since when the levels are sure."""
        return self._halved_ms + _LATE_MS

    def heavy(self, now_ms: float) -> str | None:
        """Return the user who surely has more than half of all costs, or had at the last halving."""
        halved_ms = self._started_ms + (now_ms - self._started_ms) // _PERIOD_MS * _PERIOD_MS
        if now_ms < halved_ms + _LATE_MS:
            return None
        if halved_ms > self._halved_ms:
            self._halve(halved_ms)
        is_heavy = self._least > 0 and self._least >= _SURE * (self._least + self._most_of_others)
        return self._user if is_heavy else None

    def charge(self, user: str, now_ms: float, *, is_sure: bool) -> None:
        """Note a request that has ended."""
        self.heavy(now_ms)
        self._answered.append((now_ms, user, is_sure))

    def _halve(self, halved_ms: float) -> None:
        """Find out who had most of the costs when they were halved at a time."""
        self.turns = 0.0
        self._halved_ms = halved_ms
        self._answered = [one for one in self._answered if one[0] > halved_ms - _FORGOTTEN_MS]
        least: dict[str, float] = {}
        most: dict[str, float] = {}
        for at_ms, user, is_sure in self._answered:
            if at_ms > halved_ms + _LATE_MS:
                continue
            most[user] = most.get(user, 0.0) + 0.5 ** (1 + max(0.0, halved_ms - at_ms) // _PERIOD_MS)
            if is_sure and at_ms <= halved_ms:
                least[user] = least.get(user, 0.0) + 0.5 ** (1 + (halved_ms + _LATE_MS - at_ms) // _PERIOD_MS)
        self.old = set(least)
        self._user = max(least, key=least.__getitem__, default="")
        self._least = least.get(self._user, 0.0)
        self._most_of_others = sum(most.values()) - most.get(self._user, 0.0)


class Levels(Slots):
    """Counts the turns that the heaviest user gets while others wait."""

    name: ClassVar[str] = "levels of the queue"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._accounts: dict[int, _Account] = {}
        self._started_ms = 0.0
        self._asked_ms: dict[int, float] = {}  # since when the first request of each connection can be in the queue

    def rules_changed(self, *possible: Quotas) -> None:
        """Count anew."""
        super().rules_changed(*possible)
        self._restart()

    def proxy_started(self, number: int) -> None:
        """Nobody has a cost yet."""
        super().proxy_started(number)
        self._accounts.clear()
        self._asked_ms.clear()
        self._started_ms = self.world.clock.now_ms

    def _restart(self) -> None:
        for account in self._accounts.values():
            account.turns = 0.0

    # -- what passes --

    def sent(self, exchange: "Exchange") -> None:
        """It asks for a slot if its connection waits for nothing else."""
        super().sent(exchange)
        line = self._lines.get(exchange.connection)
        if line is not None and not any(line.at_broker) and len([*line.waiting]) == 1:
            self._asked_ms[exchange.connection] = self.world.clock.now_ms

    def forwarding(self, exchange: "Exchange") -> None:
        """It has a turn."""
        line, node_id = self._lines.get(exchange.connection), exchange.forwarded_to
        account = None if node_id is None else self._accounts.get(node_id)
        if account is not None and line is not None:
            account.turns = max(0.0, account.turns - 1 / TURNS)
            if exchange.api_key == frames.PRODUCE and is_free(line, exchange) and line.last is not None:
                self._judge_turn(exchange, line, account)
        super().forwarding(exchange)

    def forwarded(self, exchange: "Exchange") -> None:
        """Its connection is free if it has no response."""
        if not exchange.expects_response:
            self._asked_ms[exchange.connection] = self.world.clock.now_ms

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """It costs something, and the next of its connection asks for a slot."""
        now_ms = self.world.clock.now_ms
        self._asked_ms[exchange.connection] = now_ms
        line = self._lines.get(exchange.connection)
        node_id = exchange.forwarded_to
        if node_id is None and line is not None and line.last is not None:
            node_id = line.last.forwarded_to
        if node_id is not None and self.world.settings.max_in_flight is not None:
            account = self._accounts.setdefault(node_id, _Account(self._started_ms))
            is_sure = exchange.api_key == frames.PRODUCE and exchange.answered_ms >= 0
            account.charge(exchange.entity.user, now_ms, is_sure=is_sure)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """What it has at a broker may cost something. It may have had a turn that nobody has seen."""
        line = self._lines.get(connection)
        for exchange in () if line is None else (*line.at_broker, *line.waiting):
            for account in self._accounts.values():
                account.charge(exchange.entity.user, self.world.clock.now_ms, is_sure=False)
        self._restart()

    # -- the verdict --

    def step(self) -> None:
        """Forget the costs where they are not known."""
        settings = self.world.settings
        if not self._accounts:
            return
        if self._is_unknown() or settings.max_in_flight != 1 or settings.queue_capacity or not settings.queues_users:
            self._accounts.clear()

    def _judge_turn(self, exchange: "Exchange", line: "Line", account: _Account) -> None:
        """Fail if the heaviest user has had too many turns while others waited."""
        now_ms = self.world.clock.now_ms
        user = account.heavy(now_ms)
        since_ms, last = account.since_ms, line.last
        if user != exchange.entity.user or user == NOBODY or last is None:
            return
        asked_ms = self._asked_ms.get(exchange.connection, 0.0)
        if asked_ms <= since_ms or not last.has_open_broker or last.forwarded_to != exchange.forwarded_to:
            return
        others = [one for one in self._lines.values() if self._waits_with(one, exchange, account, now_ms)]
        if not others:
            return
        account.turns += 1
        if account.turns > _MOST_TURNS:
            waiting = [first_waiting(one) for one in others]
            text = f"{exchange} of {user}, who has most of the costs, is forwarded while others wait: {waiting}"
            self.world.fail(self.name, f"{text}; the turns of 15 that {user} had are more than one")

    def _waits_with(self, line: "Line", exchange: "Exchange", account: _Account, now_ms: float) -> bool:
        """Return whether the first request of a connection surely waits at a higher level."""
        other = first_waiting(line)
        if other is None or line.last is None or other.entity.user == exchange.entity.user:
            return False
        if other.entity.user not in account.old or other.entity.user == NOBODY:
            return False
        asked_ms = self._asked_ms.get(other.connection, now_ms)
        if line.last.forwarded_to != exchange.forwarded_to or not account.since_ms < asked_ms < now_ms - _MOMENT_MS:
            return False
        return self._surely_waits(other, line, now_ms)
