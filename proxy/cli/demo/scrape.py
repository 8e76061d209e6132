"""Throttle times of the demo's clients, from the proxy's /metrics."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from kafka_quota_proxy.proxy.cli.demo.errors import ProcessError

_TIMEOUT_S: Final = 2
_THROTTLE_SECONDS: Final = "kafka_quota_proxy_throttle_seconds_total"
_THROTTLED_REQUESTS: Final = "kafka_quota_proxy_throttled_requests_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """The throttling of one client since the proxy started."""

    throttle_time_ms: float = 0.0
    throttled_requests: int = 0


def fetch_metrics(url: str) -> str:
    """Return the text of /metrics. Blocks: call it in a thread.

    Raises:
        ProcessError: The proxy does not answer.
    """
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http://127.0.0.1 of our own
            text: str = answer.read().decode()
            return text
    except OSError as error:
        raise ProcessError(f"the proxy does not answer at {url}: {error}") from error


def throttling(metrics: str, *, client_id: str) -> Throttling:
    """Return a client's throttling from the Prometheus text format; zeros where the client has no series yet."""
    seconds = requests = 0.0
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.labels.get("client_id") == client_id:
                seconds += sample.value if sample.name == _THROTTLE_SECONDS else 0
                requests += sample.value if sample.name == _THROTTLED_REQUESTS else 0
    return Throttling(throttle_time_ms=seconds * 1000, throttled_requests=int(requests))
