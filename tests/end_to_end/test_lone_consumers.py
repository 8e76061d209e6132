"""A consumer that is alone with its quota gets it, and can use at least 0.95 of it, with each library's defaults.

What an application can use are whole batches, by their size on the wire. All consumers read a topic to its end at the
same time, each with a client-id and a quota of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import pytest

from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, MIB
from tests.end_to_end.support.lone_readers import AIOKAFKA, JAVA, LIBRDKAFKA, Reader, prefilled, read
from tests.end_to_end.support.proxy import Proxy

_LEAST_SHARE: Final = 0.95
# A busy machine makes clients late, and they take a while to start.
_LEAST_RATE: Final = 0.8
_SHAPES: Final = ("sampled", "paced")
_SECONDS: Final = 15  # that a topic takes under the quota
# With short windows, a sampled consumer has several bursts in these seconds.
_WINDOWS: Final = 3
_QUOTAS: Final = (100 * KIB, 512 * KIB, 2 * MIB, 5 * MIB, 50 * MIB)


class Cell(NamedTuple):
    """What a lone consumer reads, and under which quota."""

    library: str
    shape: str
    quota: int
    batch_bytes: int
    partitions: int = 1

    def __str__(self) -> str:
        return "-".join(map(str, self))


class Shares(NamedTuple):
    """The rate as a share of the quota, and how much could be used of what was charged."""

    rate: float
    usable: float


def _shares(kafka: Kafka, cells: Iterable[Cell]) -> dict[str, Shares]:
    """Run a consumer for each cell, and return its shares."""
    cells = list(cells)
    topics = {
        shape: prefilled(kafka, batch_bytes=shape[1], partitions=shape[2], size_bytes=shape[0] * _SECONDS)
        for shape in {cell[2:] for cell in cells}
    }
    rules = [{"client-id": str(cell), "consumer_byte_rate": cell.quota, "shaping": cell.shape} for cell in cells]
    readers = [Reader(cell.library, str(cell), topics[cell[2:]]) for cell in cells]
    with Proxy({"quotas": rules, "kafka": {"quota.window.num": _WINDOWS}}, kafka) as proxy:
        took_s = read(kafka, readers, proxy.address(), within_s=10 * _SECONDS)
        metrics = proxy.metrics()

    def total(name: str, cell: Cell) -> float:
        return metrics.total(f"kafka_quota_proxy_{name}_total", kind="fetch", client_id=str(cell))

    assert [cell for cell in cells if not total("throttled_requests", cell)] == []
    sizes = {cell: topics[cell[2:]].records * cell.batch_bytes for cell in cells}
    return {
        str(cell): Shares(size_bytes / took_s[str(cell)] / cell.quota, size_bytes / total("bytes", cell))
        for cell, size_bytes in sizes.items()
    }


def test_lone_consumer_gets_its_quota_in_whole_batches(kafka_4: Kafka) -> None:
    pairs = ((512 * KIB, 16_384), (2 * MIB, 65_536), (MIB, 200_000))
    shares = _shares(
        kafka_4, (Cell(library, shape, *pair) for library in (LIBRDKAFKA, JAVA) for pair in pairs for shape in _SHAPES)
    )

    print(shares)  # noqa: T201
    assert {name: one for name, one in shares.items() if one.rate < _LEAST_RATE or one.usable < _LEAST_SHARE} == {}


@pytest.mark.long
@pytest.mark.parametrize("partitions", [1, 50])
@pytest.mark.parametrize("batch_bytes", [KIB, 16 * KIB, 64 * KIB, 200_000, MIB])
def test_any_batches_and_quotas(kafka_4: Kafka, batch_bytes: int, partitions: int) -> None:
    # Smaller batches at such rates would measure how fast Python handles records.
    quotas = [quota for quota in _QUOTAS if quota <= 512 * batch_bytes]
    shares = _shares(
        kafka_4,
        (
            Cell(library, shape, quota, batch_bytes, partitions)
            for library in (JAVA, LIBRDKAFKA, AIOKAFKA)
            for quota in quotas
            for shape in _SHAPES
        ),
    )

    assert {name: one for name, one in shares.items() if one.usable < _LEAST_SHARE} == {}
