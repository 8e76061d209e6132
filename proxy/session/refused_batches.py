"""Keeps the batches of idempotent producers that were refused on a connection, so that no later batch overtakes them.

A client that pipelines has sent further batches before it sees the refusal. If one of them reached a broker that knows
nothing of the producer yet, the broker would accept it with any sequence number. The refused batch, which the client
sends again, would then fail with OUT_OF_ORDER_SEQUENCE_NUMBER, and its records would be lost.

Source: ``ProducerAppendInfo.checkSequence`` and ``TransactionManager.canRetry`` in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafka_quota_proxy.protocol.producer_sequences import ProducerBatch

# A connection has refused few batches at a time: the Java client has at most 5 requests in flight.
MAX_BATCHES: Final = 2_000
# By then a client has given up the requests that it had sent before the refusal. It may have sent the refused batch on
# another connection. Java waits 30 s for a response, and librdkafka 60 s.
_KEPT_MS: Final = 60_000
# Sequence numbers begin again at 0 after 2^31 - 1.
_SEQUENCES: Final = 2**31
_HALF: Final = _SEQUENCES // 2


class RefusedBatches:
    """The batches that were refused on one connection and did not pass since then."""

    __slots__ = ("_by_partition", "_until_ms")

    def __init__(self) -> None:
        # By topic and partition: the producer's id and epoch, and the base sequences of its refused batches.
        self._by_partition: dict[tuple[bytes, int], tuple[tuple[int, int], set[int]]] = {}
        self._until_ms = 0

    def __len__(self) -> int:
        return sum(len(sequences) for _, sequences in self._by_partition.values())

    def __bool__(self) -> bool:
        return bool(self._by_partition)

    def has_expired(self, now_ms: int) -> bool:
        """Return whether there is no batch left that another could overtake."""
        return now_ms >= self._until_ms or not self._by_partition

    def add(self, batches: Iterable[ProducerBatch], *, now_ms: int, is_behind: bool) -> None:
        """Note refused batches. ``is_behind`` says that they were refused because of batches that are already noted."""
        if not is_behind:
            self._until_ms = now_ms + _KEPT_MS
        for batch in batches:
            key, producer = _keys(batch)
            noted = self._by_partition.get(key)
            if noted is None or noted[0] != producer:
                noted = self._by_partition[key] = (producer, set())
            noted[1].add(batch.base_sequence)

    def precede(self, batches: Iterable[ProducerBatch]) -> bool:
        """Return whether any of ``batches`` would overtake a refused batch of its producer."""
        return any(_is_after(batch.base_sequence, sequence) for batch in batches for sequence in self._refused(batch))

    def remove(self, batches: Iterable[ProducerBatch]) -> None:
        """Forget the refused batches that are among ``batches``, which are now forwarded."""
        for batch in batches:
            left = {one for one in self._refused(batch) if _is_after(one, batch.base_sequence)}
            key, producer = _keys(batch)
            if left:
                self._by_partition[key] = (producer, left)
            else:
                self._by_partition.pop(key, None)

    def _refused(self, batch: ProducerBatch) -> Iterable[int]:
        key, producer = _keys(batch)
        noted = self._by_partition.get(key)
        return noted[1] if noted is not None and noted[0] == producer else ()


def _keys(batch: ProducerBatch) -> tuple[tuple[bytes, int], tuple[int, int]]:
    return (batch.topic, batch.partition), (batch.producer_id, batch.producer_epoch)


def _is_after(sequence: int, earlier: int) -> bool:
    return 0 < (sequence - earlier) % _SEQUENCES < _HALF
