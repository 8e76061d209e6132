"""Prometheus' text format 0.0.4, written line by line.

    # HELP kafka_quota_proxy_connections Open client connections.
    # TYPE kafka_quota_proxy_connections gauge
    kafka_quota_proxy_connections{listener="clients"} 3

Written here because prometheus_client builds a whole scrape in one go: 90,000 lines took 1.8 s of the interpreter, in
steps of 50 ms during which the event loop stood still. Here a line takes a tenth of that, and the thread rests after
every few lines.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import sleep
from typing import Final, NamedTuple, TypeAlias, TypeVar

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# While this thread computes, every callback of the event loop waits for the interpreter, up to sys.getswitchinterval().
# So it computes for about 0.1 ms and sleeps for longer.
LINES_BETWEEN_RESTS: Final = 100
_REST_S: Final = 0.0005

_T = TypeVar("_T")
Rest = Callable[[], None]


class Family(NamedTuple):
    """A metric and its samples. A sample is what follows the name on its line, and the value."""

    name: str  # with _total where it has one
    type: str  # counter, gauge or histogram
    help: str
    samples: Iterable[tuple[str, float]]


class Namespace:
    """Creates families whose names begin with ``prefix``.

    ``sums_duplicates`` adds up samples with the same labels: two brokers may have one name for a while.
    """

    def __init__(self, prefix: str, *, sums_duplicates: bool = False) -> None:
        self.prefix = prefix
        self._sums_duplicates = sums_duplicates

    def gauge(self, name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
        """Return a gauge."""
        return self._family(name, help_, samples)

    def counter(self, name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
        """Return a counter; ``_total`` is appended to its name."""
        return self._family(f"{name}_total", help_, samples)

    def table(self, metrics: "Iterable[Metric[_T]]", rows: Sequence[tuple[str, _T]]) -> Iterator[Family]:
        """Yield a family for each metric. Each row is the labels of a sample, and the object that its value is of."""
        for name, help_, read in metrics:
            values = ((text, read(one)) for text, one in rows)
            yield self._family(name, help_, [(text, float(value)) for text, value in values if value is not None])

    def single_values(self, metrics: "Iterable[Metric[_T]]", source: _T | None) -> Iterator[Family]:
        """Yield a family of one value for each metric; nothing if ``source`` is None."""
        return self.table(metrics, [("", source)]) if source is not None else iter(())

    def _family(self, name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
        kind = "counter" if name.endswith("_total") else "gauge"
        return Family(f"{self.prefix}_{name}", kind, help_, summed(samples) if self._sums_duplicates else samples)


# The name (a counter's ends in _total), the help, and how the value is read; None: no sample.
Metric: TypeAlias = tuple[str, str, Callable[[_T], float | None]]
PROXY: Final = Namespace("kafka_quota_proxy")


def rest() -> None:
    """Leave the interpreter to the event loop for a moment."""
    sleep(_REST_S)


def paced(items: Iterable[_T], rest: Rest, *, every: int = 20) -> Iterator[_T]:
    """Yield ``items``, with a rest after every few."""
    for count, item in enumerate(items, start=1):
        yield item
        if count % every == 0:
            rest()


def labels(**values: str) -> str:
    """Return ``{name="value",...}``."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def summed(samples: Iterable[tuple[str, float]]) -> Iterable[tuple[str, float]]:
    """Add up samples with the same labels, of which Prometheus would drop all but one."""
    sums: dict[str, float] = {}
    for text, value in samples:
        sums[text] = sums.get(text, 0) + value
    return sums.items()


def write(families: Iterable[Family], rest: Rest = rest) -> Iterator[bytes]:
    """Yield the families as text, in pieces, with a rest after each."""
    for family in families:
        name = family.name
        lines = [f"# HELP {name} {family.help}\n# TYPE {name} {family.type}\n"]
        for rest_of_line, value in family.samples:
            lines.append(f"{name}{rest_of_line} {number(value)}\n")
            if len(lines) == LINES_BETWEEN_RESTS:
                yield "".join(lines).encode()
                lines.clear()
                rest()
        yield "".join(lines).encode()


def number(value: float) -> str:
    """Return ``value`` as Prometheus parses it."""
    return "NaN" if value != value else str(value)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
