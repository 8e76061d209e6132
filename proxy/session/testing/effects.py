"""Says what an order of a test does to a response."""

from __future__ import annotations

from typing import NamedTuple

from kafka_quota_proxy.protocol import fetch_partitions


class Effects(NamedTuple):
    """What an order does to a response.

    Attributes:
        throttle_time_ms: The throttle time that the response gets, in milliseconds. None leaves that of the broker.
        delay_ms: How long the response is held back, in milliseconds, as by a slow broker.
        error_code: The error that the response gets, or None.
        is_empty: Whether the partitions of a Fetch response lose their records.
        closes: Whether the connection is closed after the response and its throttle time.
        topics: The topics whose partitions of a Fetch response are meant, as the response names them. None means all.
    """

    throttle_time_ms: int | None = None
    delay_ms: int = 0
    error_code: int | None = None
    is_empty: bool = False
    closes: bool = False
    topics: frozenset[bytes] | None = None

    @property
    def edits_fetch(self) -> bool:
        """Whether the partitions of a Fetch response change."""
        return self.is_empty or self.error_code is not None

    def rewritten(self, frame: bytes, api_version: int) -> bytes:
        """Return a whole Fetch response, with partitions that have the error and no records."""
        return fetch_partitions.without_records(frame, api_version, self.topics, error_code=self.error_code)
