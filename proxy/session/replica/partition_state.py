"""Keeps what is known about a throttled partition, such as its high watermark, between two fetches of a follower."""

from typing import Final

from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition

# The rate of writes to a partition is measured over at least this time.
_BYTES_IN_EVERY_MS: Final = 5_000

Key = tuple[bytes, int]  # the topic's name or id, and the partition


class PartitionState:
    """Holds what the follower's last fetch, and the response to it, showed about a throttled partition.

    Attributes:
        high_watermark, last_stable_offset, leader_epoch, log_start_offset: The values in the last fetch and its
            response.
        bytes_in_rate: How many bytes per second are written to the partition.
        bytes_per_offset: The mean size of a record in bytes, or 0 while it is unknown.
        fetch_offset: The offset at which the last fetch began.
        turn: The number of the last response that contained records of the partition while it lagged. Later responses
            have higher numbers.
        requested_bytes: The ``max_bytes`` of the partition in the last fetch.
        least_bytes: The smallest number of bytes into which a batch is likely to fit.
    """

    __slots__ = (
        "_since",
        "bytes_in_rate",
        "bytes_per_offset",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "least_bytes",
        "log_start_offset",
        "requested_bytes",
        "turn",
    )

    def __init__(self, partition: ResponsePartition, leader_epoch: int, now_ms: int) -> None:
        self._since = (now_ms, partition.high_watermark)
        self.bytes_in_rate = 0.0
        self.bytes_per_offset = 0.0
        self.fetch_offset = 0
        self.turn = 0
        self.requested_bytes = 0
        self.least_bytes = 0
        self.see(partition, leader_epoch, now_ms)

    @property
    def lag(self) -> int:
        """How many offsets the follower was behind the high watermark in its last fetch, according to the response."""
        return max(self.high_watermark - self.fetch_offset, 0)

    def see(self, partition: ResponsePartition, leader_epoch: int, now_ms: int) -> None:
        """Note the offsets that a response contains for the partition, and update the rate of writes.

        If a later response contains an entry without records (``empty_entry``), the entry repeats these offsets.
        """
        since_ms, since_offset = self._since
        if now_ms - since_ms >= _BYTES_IN_EVERY_MS:
            offsets = max(partition.high_watermark - since_offset, 0)
            self.bytes_in_rate = offsets * self.bytes_per_offset * 1_000 / (now_ms - since_ms)
            self._since = (now_ms, partition.high_watermark)
        self.leader_epoch = leader_epoch
        self.high_watermark = partition.high_watermark
        self.last_stable_offset = partition.last_stable_offset
        self.log_start_offset = partition.log_start_offset

    def measure(self, size_bytes: int, next_offset: int) -> None:
        """Compute the mean size of the records from ``fetch_offset`` to ``next_offset``, which take ``size_bytes``."""
        if next_offset > self.fetch_offset:
            self.bytes_per_offset = size_bytes / (next_offset - self.fetch_offset)

    def lag_bytes(self, most: int) -> int:
        """Return about how many bytes the follower lacks, but at most ``most``.

        If the number is unknown, return ``most``.
        """
        return min(most, int(self.lag * self.bytes_per_offset) + 1) if self.bytes_per_offset else most
