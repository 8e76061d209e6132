"""Writes Prometheus' text format 0.0.4, line by line.

A metric is written like this::

    # HELP kafka_quota_proxy_connections Open client connections.
    # TYPE kafka_quota_proxy_connections gauge
    kafka_quota_proxy_connections{listener="clients"} 3

prometheus_client is not used, because it builds a whole scrape at once. For 90,000 lines this took 1.8 s, and stopped
the event loop for 50 ms at a time. This module takes a tenth of that time, and sleeps after every few lines.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import sleep
from typing import Final, NamedTuple, TypeAlias, TypeVar

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# While this thread computes, every callback of the event loop waits for the interpreter, for up to
# sys.getswitchinterval(). So this thread computes for about 0.1 ms, and then sleeps for longer.
LINES_BETWEEN_RESTS: Final = 100
_REST_S: Final = 0.0005

_T = TypeVar("_T")
Rest = Callable[[], None]


class Family(NamedTuple):
    """A metric and its samples.

    A sample contains the text that follows the metric's name on the line, such as the labels, and the value.
    """

    name: str  # the name of a counter ends in _total
    type: str  # counter, gauge or histogram
    help: str
    samples: Iterable[tuple[str, float]]


class Namespace:
    """Creates metrics with names that begin with ``prefix``.

    If ``sums_duplicates`` is True, the values of samples with the same labels are added up. Two brokers may be shown
    under the same label, and Prometheus would keep only one of their samples.
    """

    def __init__(self, prefix: str, *, sums_duplicates: bool = False) -> None:
        self.prefix = prefix
        self._sums_duplicates = sums_duplicates

    def gauge(self, name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
        """Return a gauge with these samples."""
        return self._family(name, help_, samples)

    def counter(self, name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
        """Return a counter with these samples. ``_total`` is appended to its name."""
        return self._family(f"{name}_total", help_, samples)

    def table(self, metrics: "Iterable[Metric[_T]]", rows: Sequence[tuple[str, _T]]) -> Iterator[Family]:
        """Yield each of ``metrics`` with one sample for each row.

        A row contains the labels of these samples, and the object from which the metrics read their values.
        """
        for name, help_, read in metrics:
            values = ((text, read(one)) for text, one in rows)
            yield self._family(name, help_, [(text, float(value)) for text, value in values if value is not None])

    def single_values(self, metrics: "Iterable[Metric[_T]]", source: _T | None) -> Iterator[Family]:
        """Yield each of ``metrics`` with one value, read from ``source``, and no labels.

        If ``source`` is None, yield nothing.
        """
        return self.table(metrics, [("", source)]) if source is not None else iter(())

    def _family(self, name: str, help_: str, samples: Iterable[tuple[str, float]]) -> Family:
        kind = "counter" if name.endswith("_total") else "gauge"
        return Family(f"{self.prefix}_{name}", kind, help_, summed(samples) if self._sums_duplicates else samples)


# The name (of a counter with _total), the help text, and a function that reads the value. If the function returns None,
# there is no sample.
Metric: TypeAlias = tuple[str, str, Callable[[_T], float | None]]
PROXY: Final = Namespace("kafka_quota_proxy")


def rest() -> None:
    """Pause this thread for a moment, so that the event loop's thread can run."""
    sleep(_REST_S)


def paced(items: Iterable[_T], rest: Rest, *, every: int = 20) -> Iterator[_T]:
    """Yield ``items``, and call ``rest`` after every ``every`` items."""
    for count, item in enumerate(items, start=1):
        yield item
        if count % every == 0:
            rest()


def labels(**values: str) -> str:
    """Return the labels of a sample as Prometheus writes them, such as ``{name="value",...}``."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def summed(samples: Iterable[tuple[str, float]]) -> Iterable[tuple[str, float]]:
    """Add up samples with the same labels, because Prometheus would keep only one of them."""
    sums: dict[str, float] = {}
    for text, value in samples:
        sums[text] = sums.get(text, 0) + value
    return sums.items()


def write(families: Iterable[Family], rest: Rest = rest) -> Iterator[bytes]:
    """Yield the metrics in Prometheus' text format, in pieces, and call ``rest`` after each piece."""
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
    """Return a number in a form that Prometheus can parse."""
    return "NaN" if value != value else str(value)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
