"""The file on disk and the configuration in force: seen when it changes, taken whole or not at all.

Polled with ``os.stat``, which sees writes in place, renames over the file and the swapped symbolic links of a
Kubernetes ConfigMap alike; notifications of the system miss the last two when they watch a file.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Final, NamedTuple

from kafka_quota_proxy.config.errors import ConfigError, Fault
from kafka_quota_proxy.config.load import Loaded, load
from kafka_quota_proxy.config.model import EntityName, KafkaSettings, ProxyConfig, QuotaRule

log = logging.getLogger(__name__)

_POLL_S: Final = 0.5
# A file being written in place is seen half-written, and half a list of quotas is valid YAML: it must have been left
# alone for this long.
_SETTLE_S: Final = 0.2

# What listeners and quotas take from a new file while they run; the rest of each is fixed at the start.
_LISTENER_FIXED: Final = ("bind", "upstream", "cluster", "node_id", "client_tls", "upstream_tls")
_KAFKA_FIXED: Final = (
    "quota_window_num",
    "quota_window_size_seconds",
    "replication_quota_window_num",
    "replication_quota_window_size_seconds",
)


class _Seen(NamedTuple):
    """What tells one state of a file from another."""

    mtime_ns: int
    inode: int
    size_bytes: int


class Reloader:
    """Watches one file. ``on_loaded`` is called on the loop with every valid new content."""

    def __init__(
        self,
        path: str | Path,
        loaded: Loaded,
        *,
        on_loaded: Callable[[Loaded], None],
        poll_s: float = _POLL_S,
        settle_s: float = _SETTLE_S,
    ) -> None:
        self.last_reload_successful = True
        self.last_reload_timestamp_seconds = time.time()  # of the last that was successful; the start is one
        self._path = Path(path)
        self._in_force = loaded
        self._started_with = loaded.config
        self._on_loaded = on_loaded
        self._poll_s = poll_s
        self._settle_s = settle_s
        self._requested = asyncio.Event()
        self._seen = self._look()

    @property
    def hash(self) -> str:
        """The hash of the content in force."""
        return self._in_force.hash

    def request(self) -> None:
        """Read the file again even if it looks unchanged. For SIGHUP; call it on the loop."""
        self._requested.set()

    async def watch(self) -> None:
        """Reload whenever the file changes or somebody asks for it, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._requested.wait()
            if self._requested.is_set() or self._look() != self._seen:
                self._requested.clear()
                await self._settle()
                await self.reload()

    async def reload(self) -> bool:
        """Read the file now. Returns whether it is valid; if not, what was in force stays in force."""
        try:
            # Certificates are looked after by themselves, and may be in the middle of being replaced.
            loaded = await asyncio.to_thread(load, self._path, reads_files=False)
        except ConfigError as error:
            self.last_reload_successful = False
            _log_faults(error.faults)
            log.warning("%s is not valid: nothing was changed, what was in force stays in force", self._path)
            return False
        self.last_reload_successful = True
        self.last_reload_timestamp_seconds = time.time()
        if loaded.hash == self.hash:
            log.info("%s was read again: nothing has changed", self._path)
            return True
        _log_faults(loaded.warnings)
        log.info("%s is in force: %s", self._path, summary(self._in_force.config, loaded.config))
        for key in needs_restart(self._started_with, loaded.config):
            log.warning("%s: %s has changed, which takes effect at the next start only", self._path, key)
        self._in_force = loaded
        self._on_loaded(loaded)
        return True

    async def _settle(self) -> None:
        """Wait until the file is there and is not being written."""
        while True:
            self._seen = self._look()
            await asyncio.sleep(self._settle_s)
            if self._look() == self._seen:
                return

    def _look(self) -> _Seen | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116  # 2 us; Path.stat takes twice that
        except OSError:
            return None
        return _Seen(found.st_mtime_ns, found.st_ino, found.st_size)


def needs_restart(running: ProxyConfig, new: ProxyConfig) -> tuple[str, ...]:
    """Return the keys of ``new`` that differ from what the process was started with and cannot change while it runs."""
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


def summary(old: ProxyConfig, new: ProxyConfig) -> str:
    """Return what differs, in one line: quotas by number, everything else by its key."""
    before, after = _by_entity(old), _by_entity(new)
    added, removed = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    changed = sum(1 for entity, rule in after.items() if entity in before and before[entity] != rule)
    quotas = f"{len(after)} quotas ({added} added, {removed} removed, {changed} changed)"
    others = [
        field.name.removesuffix("_ms").removesuffix("_bytes")
        for field in fields(ProxyConfig)
        if field.name != "quotas" and getattr(old, field.name) != getattr(new, field.name)
    ]
    return f"{quotas}; changed besides: {', '.join(others)}" if others else quotas


def _by_entity(config: ProxyConfig) -> Mapping[tuple[EntityName, EntityName], QuotaRule]:
    # A rule that only moved to another line is the same rule.
    return {(rule.user, rule.client_id): replace(rule, source="") for rule in config.quotas}


def _log_faults(faults: tuple[Fault, ...]) -> None:
    for fault in faults:
        log.warning("%s", fault)
