"""The state of a partition that a follower fetches, between one response and the next."""

from typing import Final

from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition

# The rate at which a partition is written to is measured over this time.
_BYTES_IN_EVERY_MS: Final = 5_000

Key = tuple[bytes, int]  # the topic's name or id, and the partition


class PartitionState:
    """A throttled partition, as one follower's last fetch and its response showed it.

    Attributes:
        bytes_in_rate: Bytes per second that are written to the partition.
        bytes_per_offset: The mean size of a record; 0: unknown.
        fetch_offset: Where the last fetch began.
        brought_bytes: The records of the last response.
        turn: When the partition lagged and got records last; a number that grows.
        requested_bytes: The most that the last fetch asked for.
        least_bytes: No batch is likely to fit into less.
    """

    __slots__ = (
        "_since",
        "brought_bytes",
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
        self.brought_bytes = 0
        self.turn = 0
        self.requested_bytes = 0
        self.least_bytes = 0
        self.see(partition, leader_epoch, now_ms)

    @property
    def lag(self) -> int:
        """How many offsets the follower lacks, by the last fetch and its response."""
        return max(self.high_watermark - self.fetch_offset, 0)

    def see(self, partition: ResponsePartition, leader_epoch: int, now_ms: int) -> None:
        """Note what a response says: an entry that is put back later repeats it."""
        since_ms, since_offset = self._since
        if now_ms - since_ms >= _BYTES_IN_EVERY_MS:
            offsets = max(partition.high_watermark - since_offset, 0)
            self.bytes_in_rate = offsets * self.bytes_per_offset * 1_000 / (now_ms - since_ms)
            self._since = (now_ms, partition.high_watermark)
        self.leader_epoch = leader_epoch
        self.high_watermark = partition.high_watermark
        self.last_stable_offset = partition.last_stable_offset
        self.log_start_offset = partition.log_start_offset

    def arrive_at(self, fetch_offset: int) -> None:
        """Note where the next fetch begins."""
        offsets = fetch_offset - self.fetch_offset
        if self.brought_bytes and offsets > 0:
            self.bytes_per_offset = self.brought_bytes / offsets
        self.brought_bytes = 0
        self.fetch_offset = fetch_offset

    def lag_bytes(self, most: int) -> int:
        """Return about how many bytes the follower lacks, at most ``most``; ``most`` while that is unknown."""
        return min(most, int(self.lag * self.bytes_per_offset) + 1) if self.bytes_per_offset else most
