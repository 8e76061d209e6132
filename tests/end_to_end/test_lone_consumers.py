"""A consumer that is alone with its quota gets at least 0.95 of it in whole batches, with each library's defaults.

What an application gets are whole batches, by their size on the wire. A share is the rate of these over the quota,
without the initial burst. All consumers of a table read at the same time, each with a client-id and a quota of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import pytest

from tests.end_to_end.support.broker_quotas import BrokerQuotas, Entity
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, MIB
from tests.end_to_end.support.lone_readers import (
    AIOKAFKA,
    FRANZ_GO,
    JAVA,
    LIBRDKAFKA,
    Arrival,
    Reader,
    delete_topics,
    prefilled,
    rate,
    read,
)
from tests.end_to_end.support.proxy import Proxy

SAMPLED, PACED = "sampled", "paced"
_KAFKAS_OWN: Final = "Kafka's own"
_LEAST_SHARE: Final = 0.95
# Two shares in bursts differ by some hundredths without a cause.
_NOISE: Final = 0.03
# By then the burst of the first window has passed.
_AFTER_S: Final = {SAMPLED: 15.0, PACED: 3.0, _KAFKAS_OWN: 15.0}
# Sampled, a consumer reads in bursts, one in 12 s. Kafka 4 forgets a second 11 s after the last bytes in it.
_WINDOW_S: Final = 12
_PROOF_S: Final = 15 + 2 * _WINDOW_S
_LONGER_S: Final = 15 + 4 * _WINDOW_S
_LIBRARIES: Final = (JAVA, LIBRDKAFKA, AIOKAFKA, FRANZ_GO)


class Cell(NamedTuple):
    """What a lone consumer reads, and under which quota."""

    library: str
    shape: str
    quota: int
    batch_bytes: int
    partitions: int = 1

    @property
    def client_id(self) -> str:
        return f"{self.library}-{self.shape[:7]}-{self.quota}-{self.batch_bytes}-{self.partitions}".replace("'", "")


def _shares(kafka: Kafka, cells: Sequence[Cell], *, seconds: int) -> dict[Cell, float]:
    """Run a lone consumer for each cell, and return the share of its quota that each got."""
    topics = {}
    for batch_bytes, partitions in sorted({(cell.batch_bytes, cell.partitions) for cell in cells}):
        quota = max(cell.quota for cell in cells if (cell.batch_bytes, cell.partitions) == (batch_bytes, partitions))
        size_bytes = quota * (seconds + _WINDOW_S)
        topics[batch_bytes, partitions] = prefilled(
            kafka, batch_bytes=batch_bytes, partitions=partitions, size_bytes=size_bytes
        )
    ours = [cell for cell in cells if cell.shape != _KAFKAS_OWN]
    rules = [
        {"client-id": cell.client_id, "consumer_byte_rate": cell.quota}
        | ({"shaping": PACED} if cell.shape == PACED else {})
        for cell in ours
    ]
    own = {
        Entity(None, cell.client_id): {"consumer_byte_rate": float(cell.quota)} for cell in cells if cell not in ours
    }
    with Proxy({"quotas": rules}, kafka) as proxy, BrokerQuotas(kafka) as quotas:
        quotas.replace(own)
        direct = kafka.listener(DIRECT).address
        readers = [
            Reader(
                library=cell.library,
                client_id=cell.client_id,
                address=proxy.address() if cell in ours else direct,
                topic=topics[cell.batch_bytes, cell.partitions],
                partitions=cell.partitions,
            )
            for cell in cells
        ]
        arrivals = read(kafka, readers, seconds=seconds)
    delete_topics(kafka, topics.values())
    return {cell: _share(cell, arrivals[cell.client_id], seconds) for cell in cells}


def _share(cell: Cell, arrivals: Sequence[Arrival], seconds: int) -> float:
    after_s = _AFTER_S[cell.shape]
    # Windows of half the time begin over the other half, so that bursts just inside or outside of one weigh little.
    window_s = (seconds - after_s) // (2 * _WINDOW_S) * _WINDOW_S
    until_s = after_s + 2 * window_s
    return (
        rate(arrivals, batch_bytes=cell.batch_bytes, after_s=after_s, until_s=until_s, window_s=window_s) / cell.quota
    )


def _faults(shares: dict[Cell, float]) -> list[str]:
    """Return a sentence for each cell of ours below the least share, or below what Kafka's own quota gives."""
    faults = []
    for cell, share in shares.items():
        if cell.shape == _KAFKAS_OWN:
            continue
        if not share >= _LEAST_SHARE:
            faults.append(f"{cell}: {share:.3f}")
        own = shares.get(cell._replace(shape=_KAFKAS_OWN), 0.0)
        if cell.shape == SAMPLED and share < min(own, 1.0) - _NOISE:
            faults.append(f"{cell}: {share:.3f}, and {own:.3f} with Kafka's own quota")
    return faults


def _cells(
    libraries: Iterable[str], pairs: Iterable[tuple[int, int]], partitions: int = 1, *, with_kafkas: bool = False
) -> list[Cell]:
    """Return the cells of these libraries, and of pairs of a quota and a size of batch."""
    shapes = (SAMPLED, PACED, _KAFKAS_OWN) if with_kafkas else (SAMPLED, PACED)
    return [
        Cell(library, shape, quota, batch_bytes, partitions)
        for library in libraries
        for quota, batch_bytes in pairs
        for shape in shapes
    ]


_FEW: Final = ((512 * KIB, 16_384), (2 * MIB, 65_536), (MIB, 200_000))


def test_lone_consumer_gets_its_quota_in_whole_batches(kafka_4: Kafka) -> None:
    shares = _shares(kafka_4, _cells((LIBRDKAFKA, JAVA), _FEW), seconds=_PROOF_S)

    print(shares)  # noqa: T201
    assert _faults(shares) == []


_QUOTAS: Final = (100 * KIB, 512 * KIB, 2 * MIB, 5 * MIB)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("partitions", [1, 50])
@pytest.mark.parametrize("batch_bytes", [KIB, 16 * KIB, 64 * KIB, 200_000, MIB])
def test_any_batches_and_quotas(kafka_4: Kafka, batch_bytes: int, partitions: int) -> None:
    # Batches of 1 KiB at more than 512 KiB/s would measure how fast Python handles records.
    quotas = [quota for quota in _QUOTAS if batch_bytes > KIB or quota <= 512 * KIB]
    pairs = [(quota, batch_bytes) for quota in quotas]

    # A batch may be ten seconds' worth of the quota. Then three of them are a cycle.
    seconds = _LONGER_S if batch_bytes < MIB else 15 + 6 * _WINDOW_S
    shares = _shares(kafka_4, _cells(_LIBRARIES, pairs, partitions, with_kafkas=True), seconds=seconds)

    print(shares)  # noqa: T201
    assert _faults(shares) == []


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("batch_bytes", "partitions"), [(64 * KIB, 1), (64 * KIB, 50), (MIB, 1)])
@pytest.mark.parametrize("library", _LIBRARIES)
def test_large_quota(kafka_4: Kafka, library: str, batch_bytes: int, partitions: int) -> None:
    shares: dict[Cell, float] = {}
    for cell in _cells([library], [(50 * MIB, batch_bytes)], partitions):
        # Sampled, a burst takes seconds, and moves: in four cycles a share is known to three hundredths only.
        cycles = 2 if cell.shape == PACED else 8
        shares |= _shares(kafka_4, [cell], seconds=int(_AFTER_S[cell.shape]) + cycles * _WINDOW_S)

    print(shares)  # noqa: T201
    assert _faults(shares) == []
