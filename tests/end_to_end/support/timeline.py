"""A counter of the proxy over time: the proxy's own view of a load that a Java tool makes."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

from tests.end_to_end.support.proxy import Proxy

_EVERY_S: Final = 0.1


class Timeline:
    """Scrapes ``bytes_total`` of one client ten times a second for the length of a ``with`` block."""

    def __init__(self, proxy: Proxy, *, kind: str, client_id: str) -> None:
        """Only remember what is wanted."""
        self.flow: list[tuple[float, float]] = []
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
            now = self._proxy.metrics().total("kafka_quota_proxy_bytes_total", **self._labels)
            if now > before:
                self.flow.append((time.monotonic(), now - before))
            before = now

    def steady_rate(self, *, after_s: float, before_end_s: float = 0.5) -> float:
        """Bytes per second of an even flow, without its start and its end."""
        first, last = self.flow[0][0] + after_s, self.flow[-1][0] - before_end_s
        inside = [(at, size) for at, size in self.flow if first <= at <= last]
        return sum(size for _, size in inside[1:]) / (inside[-1][0] - inside[0][0])
