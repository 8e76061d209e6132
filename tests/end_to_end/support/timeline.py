"""A counter of the proxy over time: the proxy's own view of a load that a Java tool makes."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

from tests.end_to_end.support.proxy import Proxy

_EVERY_S: Final = 0.1
_THROTTLED: Final = "kafka_quota_proxy_throttled_requests_total"


class Timeline:
    """Scrapes ``bytes_total`` of one client ten times a second for the length of a ``with`` block."""

    def __init__(self, proxy: Proxy, *, kind: str, client_id: str) -> None:
        """Only remember what is wanted."""
        self.flow: list[tuple[float, float]] = []
        self.throttled_at_s: float | None = None
        self._proxy = proxy
        self._labels = {"kind": kind, "client_id": client_id}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._scrape)

    def __enter__(self) -> Self:
        """Start scraping."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop scraping."""
        self._done.set()
        self._thread.join()

    def _scrape(self) -> None:
        before = 0.0
        while not self._done.wait(_EVERY_S):
            metrics = self._proxy.metrics()
            now_s = time.monotonic()
            total = metrics.total("kafka_quota_proxy_bytes_total", **self._labels)
            if total > before:
                self.flow.append((now_s, total - before))
            before = total
            if self.throttled_at_s is None and metrics.total(_THROTTLED, **self._labels):
                self.throttled_at_s = now_s

    def steady_rate(self, *, before_end_s: float = 0.5) -> float:
        """Bytes per second of an even flow, from when it was first throttled (and its burst spent) to near its end."""
        if self.throttled_at_s is None:
            raise AssertionError(f"{self._labels} was never throttled")
        last = self.flow[-1][0] - before_end_s
        inside = [(at, size) for at, size in self.flow if self.throttled_at_s <= at <= last]
        return sum(size for _, size in inside[1:]) / (inside[-1][0] - inside[0][0])
