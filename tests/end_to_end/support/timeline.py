"""Records how a byte counter of the proxy grows, for the load of a Java tool."""

from __future__ import annotations

import time
from typing import Final

from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.watch import Watch

_THROTTLED: Final = "kafka_quota_proxy_throttled_requests_total"


class Timeline(Watch):
    """Scrapes ``bytes_total`` of one client ten times a second in a ``with`` block."""

    def __init__(self, proxy: Proxy, *, kind: str, client_id: str) -> None:
        super().__init__()
        self.flow: list[tuple[float, float]] = []
        self.throttled_at_s: float | None = None
        self._proxy = proxy
        self._labels = {"kind": kind, "client_id": client_id}
        self._total = 0.0

    def _look(self) -> None:
        metrics = self._proxy.metrics()
        now_s = time.monotonic()
        total = metrics.total("kafka_quota_proxy_bytes_total", **self._labels)
        if total > self._total:
            self.flow.append((now_s, total - self._total))
        self._total = total
        if self.throttled_at_s is None and metrics.total(_THROTTLED, **self._labels):
            self.throttled_at_s = now_s

    def steady_rate(self, *, before_end_s: float = 0.5) -> float:
        """Return the bytes per second from the first throttling until shortly before the end."""
        if self.throttled_at_s is None:
            raise AssertionError(f"{self._labels} was never throttled")
        last = self.flow[-1][0] - before_end_s
        inside = [(at, size) for at, size in self.flow if self.throttled_at_s <= at <= last]
        return sum(size for _, size in inside[1:]) / (inside[-1][0] - inside[0][0])
