"""Hadoop's own classes of the fair call queue, as tests drive them."""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.oracles.program import Program


def hadoop_program() -> Program:
    """Return a running program with Hadoop's classes, which come with pyspark."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Program("org.apache.hadoop.ipc.HadoopOracle", f"{Path(spec.origin).parent / 'jars'}/*")


class Hadoop:
    """Drives Hadoop's classes in a program. Beginning with a new one ends the use of the earlier one of that class."""

    def __init__(self, program: Program) -> None:
        self._ask = program.ask

    # -- ``DecayRpcScheduler``, which decays only when it is told to --

    def begin_scheduler(
        self, levels: int, *, decay_factor: float, percents: Sequence[int] | None, service_user: str
    ) -> None:
        """Begin with a new scheduler. ``percents`` are the thresholds; None gives Hadoop's."""
        self._ask("scheduler", levels, decay_factor, _joined(percents or ()), service_user)

    def charge(self, user: str, cost: int) -> None:
        self._ask("charge", user, cost)

    def respond(self, level: int, queue_us: int, processing_us: int) -> None:
        """End a call of the user "responder", which costs 1."""
        self._ask("respond", level, queue_us, processing_us)

    def decay(self) -> None:
        self._ask("decay")

    def totals(self) -> tuple[int, ...]:
        """Return the decayed and the raw cost of all users but service users, and both of service users."""
        return _numbers(self._ask("totals"))

    def costs(self) -> dict[str, int]:
        """Return the decayed cost of each user."""
        pairs = self._ask("costs")
        return {user: int(cost) for user, cost in (pair.split("=") for pair in pairs.split(",") if pair)}

    def schedule(self) -> dict[str, int]:
        """Return the level that the last decay gave each user."""
        levels: dict[str, int] = json.loads(self._ask("schedule"))
        return levels

    def level(self, user: str) -> int:
        """Return the level of the user's next call."""
        return int(self._ask("level", user))

    def averages_ms(self) -> list[float]:
        """Return the average response time of each level."""
        return [float(average) for average in self._ask("averages").split(",")]

    def backs_off(self) -> list[bool]:
        """Return for each level whether its calls are refused because of response times."""
        return [flag == "1" for flag in self._ask("backs-off").split(",")]

    # -- ``FairCallQueue`` --

    def begin_queue(self, capacity: int, *, capacity_weights: Sequence[int], weights: Sequence[int]) -> None:
        """Begin with a new queue, which has as many levels as ``weights`` has numbers."""
        self._ask("queue", len(weights), capacity, _joined(capacity_weights), _joined(weights))

    def add(self, name: str, level: int) -> bool:
        """Add a call. Return False if it is refused."""
        return not self._ask("add", name, level)

    def put(self, name: str, level: int) -> None:
        """Add a call that finds room. Without room this would wait for ever."""
        self._ask("put", name, level)

    def poll(self) -> str | None:
        """Remove the next call and return its name, or None if there is none."""
        return self._ask("poll") or None

    def sizes(self) -> tuple[int, ...]:
        """Return the number of calls in each level."""
        return _numbers(self._ask("sizes"))

    def overflows(self) -> tuple[int, ...]:
        """Return how often each level was found full."""
        return _numbers(self._ask("overflows"))

    # -- ``WeightedRoundRobinMultiplexer`` and ``WeightedTimeCostProvider`` --

    def turns(self, weights: Sequence[int], count: int) -> tuple[int, ...]:
        """Return the levels that get the first turns."""
        return _numbers(self._ask("multiplexer", _joined(weights), count))

    def cost(self, weights: Sequence[int], times_us: Sequence[int]) -> int:
        """Return the cost of a call. Both arguments have a number for each of Hadoop's phases, in order."""
        return int(self._ask("cost", _joined(weights), _joined(times_us)))


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
