"""Reloads the configuration file when it changes. A file with an error leaves the old configuration in force.

The file is polled with ``os.stat``. A notification by the system would miss a rename over the file, and the swapped
symbolic links of a Kubernetes ConfigMap.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.errors import ConfigError, Fault
from kafka_quota_proxy.config.load import Loaded, load
from kafka_quota_proxy.config.model import KafkaSettings, ProxyConfig, QuotaRule
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.server.file_state import file_state

log = logging.getLogger(__name__)

_POLL_S: Final = 0.5
# A file that is written in place may be read half-written, and half a list of quotas is valid YAML. So the file must
# have been unchanged for this long.
_SETTLE_S: Final = 0.2

# Keys of a listener and of the section ``kafka`` that a reload does not change.
_LISTENER_FIXED: Final = ("bind", "upstream", "cluster", "node_id", "client_tls", "upstream_tls")
_KAFKA_FIXED: Final = (
    "quota_window_num",
    "quota_window_size_seconds",
    "replication_quota_window_num",
    "replication_quota_window_size_seconds",
)


class LastRead(NamedTuple):
    """What came of the last time that the configuration file was read.

    Attributes:
        time_s: When it was read, in Unix time.
        event: The event of the log, such as ``config_refused``. It is ``config_loaded`` for the read at the start.
        message: A sentence for the operator.
        faults: The errors, or the warnings of a valid file.
        needs_restart: The keys that differ from those of the running program, and take effect only at the next start.
    """

    time_s: float
    event: str
    message: str
    faults: tuple[Fault, ...] = ()
    needs_restart: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether the file is not valid, so that an earlier configuration stays in force."""
        return self.event == "config_refused"


class Reloader:
    """Watches the configuration file, and passes new, valid content to ``on_loaded``, which is awaited.

    Attributes:
        last_read: What came of the last read, which may be the one at the start.
    """

    def __init__(
        self,
        path: str | Path,
        loaded: Loaded,
        *,
        on_loaded: Callable[[Loaded], Awaitable[object]],
        poll_s: float = _POLL_S,
        settle_s: float = _SETTLE_S,
    ) -> None:
        self.last_reload_successful = True
        self.last_reload_timestamp_seconds = time.time()  # of the last valid read; the start counts as one
        self._path = Path(path)
        self.last_read = LastRead(
            self.last_reload_timestamp_seconds, "config_loaded", f"{self._path} was read at the start", loaded.warnings
        )
        self._in_force = loaded
        self._started_with = loaded.config
        self._on_loaded = on_loaded
        self._poll_s = poll_s
        self._settle_s = settle_s
        self._requested = asyncio.Event()
        self._state = file_state(self._path)

    @property
    def hash(self) -> str:
        """The hash of the file content from which the configuration in force was loaded."""
        return self._in_force.hash

    def request(self) -> None:
        """Ask for a reload soon, even if the file looks unchanged, as after SIGHUP. Call this on the event loop."""
        self._requested.set()

    async def watch(self) -> None:
        """Reload the file whenever it changes or ``request`` is called, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._requested.wait()
            if self._requested.is_set() or file_state(self._path) != self._state:
                await self._settle()
                # A request that came while the file settled needs no second reload.
                self._requested.clear()
                await self.reload()

    async def reload(self) -> bool:
        """Read the file now, and return whether it is valid. If it is valid and new, it is passed to ``on_loaded``."""
        try:
            # Certificate files are watched separately, and may be half replaced now.
            loaded = await in_thread(partial(load, self._path, reads_files=False), name="reload")
        except ConfigError as error:
            self.last_reload_successful = False
            log_faults(error.faults)
            message = f"{self._path} is not valid: the configuration stays unchanged"
            self._tell(logging.WARNING, "config_refused", message, error.faults, self.last_read.needs_restart)
            return False
        self.last_reload_successful = True
        self.last_reload_timestamp_seconds = time.time()
        if loaded.hash == self.hash:
            message = f"{self._path} was read again: nothing has changed"
            self._tell(logging.INFO, "config_unchanged", message, loaded.warnings, self.last_read.needs_restart)
            return True
        log_faults(loaded.warnings)
        before, self._in_force = self._in_force, loaded
        changed = needs_restart(self._started_with, loaded.config)
        await self._on_loaded(loaded)
        message = f"{self._path} is in force: {len(loaded.config.quotas)} quotas"
        self._tell(logging.INFO, "config_reloaded", message, loaded.warnings, changed)
        for key in changed:
            log.warning(
                "%s: %s has changed, which takes effect only at the next start", self._path, key,
                extra={**self._fields("config_needs_restart"), "key": key},
            )  # fmt: skip
        rules = [*before.config.quotas]
        del before
        await in_thread(partial(_free, rules), name="reload")
        return True

    def _tell(self, level: int, event: str, message: str, faults: tuple[Fault, ...], restart: tuple[str, ...]) -> None:
        """Log what came of a read, and remember it for the status page."""
        log.log(level, "%s", message, extra=self._fields(event))
        self.last_read = LastRead(time.time(), event, message, faults, restart)

    def _fields(self, event: str) -> dict[str, object]:
        return {"event": event, "file": str(self._path)}

    async def _settle(self) -> None:
        """Wait until the file exists and is no longer being written."""
        while True:
            self._state = file_state(self._path)
            await asyncio.sleep(self._settle_s)
            if file_state(self._path) == self._state:
                return


def needs_restart(running: ProxyConfig, new: ProxyConfig) -> tuple[str, ...]:
    """Return the keys that differ between two configurations and take effect only at the next start.

    ``running`` is the configuration with which the process was started, and ``new`` the one that was just read.
    """
    keys: list[str] = []
    before = {listener.name: listener for listener in running.listeners}
    after = {listener.name: listener for listener in new.listeners}
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            keys.append(f"listeners.{name} ({'removed' if one else 'added'})")
        else:
            keys += [f"listeners.{name}.{key}" for key in _LISTENER_FIXED if getattr(one, key) != getattr(other, key)]
    keys += [
        f"kafka.{field.name.replace('_', '.')}"
        for field in fields(KafkaSettings)
        if field.name in _KAFKA_FIXED and getattr(running.kafka, field.name) != getattr(new.kafka, field.name)
    ]
    keys += [
        key
        for key in ("upstream_bind", "quotas_from", "store", "usage_log", "admin", "log")
        if getattr(running, key) != getattr(new, key)
    ]
    return tuple(keys)


def _free(rules: list[QuotaRule]) -> None:
    """Free rules that nothing else uses, one by one, because 100,000 rules at once hold the interpreter for 50 ms."""
    while rules:
        rules.pop()


def log_faults(faults: Iterable[Fault]) -> None:
    """Log faults of the configuration file, a warning each."""
    for fault in faults:
        log.warning(
            "%s", fault,
            extra={
                "event": "config_fault", "file": fault.file, "line": fault.line, "key": fault.key,
                "severity": fault.severity.value,
            },
        )  # fmt: skip
