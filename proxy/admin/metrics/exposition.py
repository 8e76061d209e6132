"""Prometheus' text format 0.0.4, written line by line.

    # HELP kafka_quota_proxy_connections Open client connections.
    # TYPE kafka_quota_proxy_connections gauge
    kafka_quota_proxy_connections{listener="clients"} 3

By hand, because of the loop. prometheus_client makes a whole scrape in one go: 90,000 lines were 1.8 s of the
interpreter and single steps of 50 ms in which the loop stood still. Here a line is a tenth of that, and after a few of
them the thread rests.
"""

from collections.abc import Callable, Iterable, Iterator
from time import sleep
from typing import Final, NamedTuple, TypeVar

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# While this thread computes, every callback of the loop waits for the interpreter, up to sys.getswitchinterval(). So it
# computes for some 0.1 ms and sleeps for longer than that.
LINES_BETWEEN_RESTS: Final = 100
_REST_S: Final = 0.0005

_T = TypeVar("_T")
Rest = Callable[[], None]


class Family(NamedTuple):
    """A metric and its samples; each sample is what follows the name, and its value."""

    name: str  # with _total where it has one
    type: str  # counter, gauge or histogram
    help: str
    samples: Iterable[tuple[str, float]]


def rest() -> None:
    """Leave the interpreter to the loop for a while."""
    sleep(_REST_S)


def paced(items: Iterable[_T], rest: Rest, *, every: int = 20) -> Iterator[_T]:
    """Return ``items``, with a rest after each few."""
    for count, item in enumerate(items, start=1):
        yield item
        if count % every == 0:
            rest()


def labels(**values: str) -> str:
    """Return ``{name="value",...}``."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def summed(samples: Iterable[tuple[str, float]]) -> Iterable[tuple[str, float]]:
    """Return one sample for all that have the same labels, of which Prometheus would drop all but one."""
    sums: dict[str, float] = {}
    for text, value in samples:
        sums[text] = sums.get(text, 0) + value
    return sums.items()


def write(families: Iterable[Family], rest: Rest = rest) -> Iterator[bytes]:
    """Return the families as text, in pieces, with a rest between them."""
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
    """Return ``value`` as Prometheus reads it."""
    return "NaN" if value != value else str(value)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
