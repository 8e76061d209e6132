"""Defines the section ``otlp``: to which OpenTelemetry endpoint the metrics are sent, and how often."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

EXAMPLE: Final = "http://127.0.0.1:4318"


@dataclass(frozen=True, slots=True, kw_only=True)
class Otlp:
    """Where the metrics are sent by OTLP over HTTP."""

    endpoint: str  # the base URL, to which /v1/metrics is added
    interval_ms: int = 60_000


def parse_endpoint(text: str) -> str:
    """Return the base URL of an endpoint without a slash at its end, or raise ValueError with the remedy."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise ValueError(f"{error}; write the base URL of the receiver, such as {EXAMPLE}") from error
    if url.scheme not in {"http", "https"} or not url.hostname or "*" in url.hostname or port == 0:
        raise ValueError(f"{text!r} is not the base URL of a receiver; write one such as {EXAMPLE}")
    if url.username is not None or url.password is not None:
        raise ValueError("has credentials; set the environment variable OTEL_EXPORTER_OTLP_HEADERS in place of them")
    if url.query or url.fragment:
        raise ValueError(f"must be a base URL without ? and #, such as {EXAMPLE}")
    if url.path.rstrip("/").endswith("/v1/metrics"):
        raise ValueError("must be the base URL, to which the proxy adds /v1/metrics; leave that out")
    return text.rstrip("/")
