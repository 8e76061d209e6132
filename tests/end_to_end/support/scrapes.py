"""Scrapes of ``/metrics`` over time."""

from __future__ import annotations

import time

from tests.end_to_end.support.proxy import Metrics, Proxy
from tests.end_to_end.support.watch import Watch


class Scrapes(Watch):
    """Scrapes a proxy ten times a second in a ``with`` block."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self._scrapes: list[tuple[float, Metrics]] = []
        self._proxy = proxy

    def nearest(self, at_s: float) -> Metrics:
        """Return the scrape nearest to this Unix time."""
        return min(self._scrapes, key=lambda scrape: abs(scrape[0] - at_s))[1]

    @property
    def last(self) -> Metrics:
        return self._scrapes[-1][1]

    def _look(self) -> None:
        before_s = time.time()
        metrics = self._proxy.metrics()
        self._scrapes.append(((before_s + time.time()) / 2, metrics))
