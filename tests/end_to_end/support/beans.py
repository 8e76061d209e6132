"""Records the attributes of a broker's MBeans over time, under the names that Prometheus' JMX exporter uses."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.end_to_end.support.artifacts import java
from tests.end_to_end.support.kafka import Broker, Kafka
from tests.end_to_end.support.processes import Process, scratch

_EVERY_MS: Final = 200
_BEAN: Final = re.compile(r"(?P<domain>[^:]+):(?P<properties>.+):(?P<attribute>[^:]+)")
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_]")


class Series(NamedTuple):
    """A time series of the exporter."""

    name: str
    labels: frozenset[tuple[str, str]]


class Reading(NamedTuple):
    """The values of all attributes at one Unix time."""

    at_s: float
    values: dict[Series, float]


class BeanWatch:
    """Reads a broker's MBeans five times a second in a ``with`` block. Needs ``Kafka(jmx=True)``.

    MBeans that appear later are not read, because Kafka's ``JmxTool`` looks for MBeans only at its start.
    """

    def __init__(self, kafka: Kafka, *object_names: str, broker: Broker | None = None) -> None:
        url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{(broker or kafka.broker).jmx_port}/jmxrmi"
        self._command = [java(), "-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", kafka.classpath]
        self._command += ["org.apache.kafka.tools.JmxTool", "--jmx-url", url, "--reporting-interval", str(_EVERY_MS)]
        for name in object_names:
            self._command += ["--object-name", name]

    def __enter__(self) -> Self:
        self._scratch = scratch("beans")
        directory = self._scratch.__enter__()
        self._process = Process(self._command, log=directory / "beans.csv")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._scratch.__exit__(None, None, None)

    def readings(self) -> list[Reading]:
        whole, _, _ = self._process.output().rpartition("\n")  # the last line may be incomplete
        rows = list(csv.reader(line for line in whole.splitlines() if line[:1] in '"0123456789'))
        if len(rows) < 2:
            return []
        series = [_series(column) for column in rows[0][1:]]
        return [Reading(int(row[0]) / 1_000, _numbers(series, row[1:])) for row in rows[1:]]


def _series(column: str) -> Series:
    """Name an attribute as Prometheus' JMX exporter does by default, in lower case."""
    found = _BEAN.fullmatch(column)
    assert found is not None, column
    (_, kind), *others = (part.split("=", 1) for part in found["properties"].split(","))
    name = "_".join((found["domain"], kind, found["attribute"]))
    return Series(_ILLEGAL.sub("_", name).lower(), frozenset((_ILLEGAL.sub("_", key), value) for key, value in others))


def _numbers(series: Sequence[Series], row: Sequence[str]) -> dict[Series, float]:
    return {one: float(value) for one, value in zip(series, row, strict=True)}
