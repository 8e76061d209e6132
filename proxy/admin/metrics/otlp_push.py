"""Sends the metrics to an OpenTelemetry endpoint at regular intervals, in a thread.

OpenTelemetry's packages are imported only if the configuration file has the section ``otlp``.
"""

import logging
import socket
import threading
from time import monotonic, monotonic_ns, time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.config.otlp import Otlp
from kafka_quota_proxy.proxy.admin.metrics.exposition import rest
from kafka_quota_proxy.proxy.admin.metrics.registry import MetricRegistry
from kafka_quota_proxy.proxy.runtime.build import install_line
from kafka_quota_proxy.proxy.runtime.isolation import attempt, persisting

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.admin.metrics.otlp_data import OtlpSender

log = logging.getLogger(__name__)

_MISSING: Final = f"needs OpenTelemetry's packages, which are not installed: {install_line('otlp')}"
_LOGGED_EVERY_S: Final = 60.0
_MAX_TIMEOUT_S: Final = 10.0
# How long the end of the program may wait for the last metrics to be sent.
_LAST_S: Final = 2.0


class OtlpPush:
    """Sends the metrics within a ``with`` statement: at its beginning, after each interval, and at its end.

    At the end nothing is sent if the last metrics could not be sent, and the program waits at most two seconds.

    Raises:
        StartError: OpenTelemetry's packages are not installed.
    """

    def __init__(self, settings: Otlp, registry: MetricRegistry, *, instance: str) -> None:
        self._settings = settings
        self._registry = registry
        self._ended = threading.Event()
        self._reasons = _Reasons()
        self._failed_at_s: float | None = None  # when a failure was last logged; None after a success
        self._sender = _sender(settings, instance)
        self._thread = threading.Thread(target=persisting(self._run), name="otlp", daemon=True)

    def __enter__(self) -> Self:
        _LIBRARY.addHandler(self._reasons)
        _LIBRARY.propagate = False
        self._thread.start()
        log.info("sending metrics to %s every %g s", self._settings.endpoint, self._settings.interval_ms / 1_000)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(_LAST_S if self._failed_at_s is None else 0.0)
        self._sender.close()
        _LIBRARY.removeHandler(self._reasons)
        _LIBRARY.propagate = True

    def _run(self) -> None:
        while not self._ended.is_set():
            attempt(self._push)
            self._ended.wait(self._settings.interval_ms / 1_000)
        if self._failed_at_s is None:
            attempt(self._push)

    def _push(self) -> None:
        self._reasons.first = ""
        families = self._registry.collect(monotonic_ns() // 1_000_000)
        is_sent = self._sender.send(families, now_ns=time_ns(), rest=rest)
        now_s, failed_at_s = monotonic(), self._failed_at_s
        if self._ended.is_set():
            return
        if is_sent:
            self._failed_at_s = None
            if failed_at_s is not None:
                log.info("metrics are sent to %s again", self._settings.endpoint)
        elif failed_at_s is None or now_s - failed_at_s >= _LOGGED_EVERY_S:
            self._failed_at_s = now_s
            log.warning("could not send metrics to %s: %s", self._settings.endpoint, self._reasons.first)


class _Reasons(logging.Handler):
    """Keeps the first warning of OpenTelemetry's exporter, which logs several for each request that fails."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message if it is the first one."""
        self.first = self.first or record.getMessage()


_LIBRARY: Final = logging.getLogger("opentelemetry.exporter")


def _sender(settings: Otlp, instance: str) -> "OtlpSender":
    try:
        from kafka_quota_proxy.proxy.admin.metrics.otlp_data import OtlpSender
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "opentelemetry":
            raise
        raise StartError(("otlp",), _MISSING) from error
    timeout_s = min(settings.interval_ms / 1_000, _MAX_TIMEOUT_S)
    return OtlpSender(settings.endpoint, instance=instance, started_ns=time_ns(), timeout_s=timeout_s)


def instance_of(config: ProxyConfig) -> str:
    """Return the name of this proxy: the name of its host, and the port of its first listener."""
    return f"{socket.gethostname()}:{config.listeners[0].bind.port}"
