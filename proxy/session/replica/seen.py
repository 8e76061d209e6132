"""What is remembered of a partition that a follower fetches, between one answer and the next."""

from typing import Final

from kafka_quota_proxy.protocol.replica_fetch import ResponsePartition

# Over how long what is written to a partition is measured.
_BYTES_IN_EVERY_MS: Final = 5_000

Key = tuple[bytes, int]  # topic, its name or its id, and partition


class Seen:
    """What was seen last of a throttled partition, by one follower."""

    __slots__ = (
        "_since",
        "asked_bytes",
        "brought_bytes",
        "bytes_in_rate",
        "bytes_per_offset",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "least_bytes",
        "log_start_offset",
        "turn",
    )

    def __init__(self, partition: ResponsePartition, leader_epoch: int, now_ms: int) -> None:
        self._since = (now_ms, partition.high_watermark)
        self.bytes_in_rate = 0.0  # what is written to the partition, bytes per second
        self.bytes_per_offset = 0.0  # 0: not known yet
        self.fetch_offset = 0
        self.brought_bytes = 0  # by the last answer
        self.turn = 0  # when it lagged and got records; a number that grows
        self.asked_bytes = 0  # by the last fetch, at the most
        self.least_bytes = 0  # in less than that likely not a batch fits
        self.see(partition, leader_epoch, now_ms)

    @property
    def lag(self) -> int:
        """How many offsets are missing, by the last fetch and the last answer."""
        return max(self.high_watermark - self.fetch_offset, 0)

    def see(self, partition: ResponsePartition, leader_epoch: int, now_ms: int) -> None:
        """Take up what an answer says; put back later, it must be what the follower was told last."""
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
        """Take up where the next fetch begins."""
        offsets = fetch_offset - self.fetch_offset
        if self.brought_bytes and offsets > 0:
            self.bytes_per_offset = self.brought_bytes / offsets
        self.brought_bytes = 0
        self.fetch_offset = fetch_offset

    def lag_bytes(self, most: int) -> int:
        """Return about how much is missing; ``most`` at the most, and while nobody knows."""
        return min(most, int(self.lag * self.bytes_per_offset) + 1) if self.bytes_per_offset else most
