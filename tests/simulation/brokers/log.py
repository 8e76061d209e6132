"""The log of a partition: batches as they were produced, found by offset."""

from bisect import bisect_right

from tests.simulation.wire import records


class Batch:
    """A batch in a log. Its bytes are made anew from ``content`` for each reader, so that a log needs little memory.

    Attributes:
        token: What tells the batch from all others.
        is_acknowledged: Whether a producer has been told that the batch is in the log.
    """

    __slots__ = ("base_offset", "content", "is_acknowledged", "next_offset", "size")

    def __init__(self, content: records.Batch, *, offset: int, leader_epoch: int) -> None:
        self.content = content._replace(base_offset=offset, leader_epoch=leader_epoch)
        self.size = content.size
        self.base_offset = offset
        self.next_offset = offset + content.record_count
        self.is_acknowledged = False

    @property
    def token(self) -> str:
        return self.content.token

    @property
    def next_sequence(self) -> int:
        """The sequence of the record after this batch; it wraps as Kafka's does."""
        return (self.content.base_sequence + self.content.record_count) & 0x7FFFFFFF


class Log:
    """Batches in the order of their offsets, which begin at 0."""

    __slots__ = ("_bases", "batches", "end_offset")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._bases: list[int] = []
        self.end_offset = 0

    def append(self, batch: Batch) -> None:
        """Add a batch whose base offset is the end of the log."""
        self.batches.append(batch)
        self._bases.append(batch.base_offset)
        self.end_offset = batch.next_offset

    def truncate(self, end_offset: int) -> list[Batch]:
        """Remove all batches that do not end at or before ``end_offset``, and return them."""
        keep = len(self.batches)
        while keep and self.batches[keep - 1].next_offset > end_offset:
            keep -= 1
        removed = self.batches[keep:]
        del self.batches[keep:], self._bases[keep:]
        self.end_offset = self.batches[-1].next_offset if self.batches else 0
        return removed

    def read(
        self, offset: int, limit: int, max_bytes: int, *, at_least_one: bool, cuts: bool = False
    ) -> tuple[list[Batch], int]:
        """Return the batches from the one that holds ``offset``, and their bytes.

        Only batches that end at or before the offset ``limit`` and that fit into ``max_bytes`` are returned. With
        ``at_least_one`` the first batch may be larger (KIP-74). With ``cuts`` the last batch may be one of which only
        the front fits, as a broker answers a Fetch. The first is always whole.
        """
        if offset >= limit:
            return [], 0
        batches = self.batches
        first = at = bisect_right(self._bases, offset) - 1
        if at < 0:
            return [], 0
        size = 0
        for at in range(first, len(batches)):
            batch = batches[at]
            if batch.next_offset > limit:
                break
            if size + batch.size > max_bytes and not (at_least_one and at == first):
                if cuts and 0 < size < max_bytes:
                    return batches[first : at + 1], max_bytes
                break
            size += batch.size
        else:
            at += 1
        return batches[first:at], size


def joined(batches: list[Batch], size: int = -1) -> bytes:
    """Return the bytes of these batches as a broker sends them, or the first ``size`` of them."""
    data = b"".join([records.write_batch(batch.content) for batch in batches])
    return data if size < 0 else data[:size]
