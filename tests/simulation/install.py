"""Puts the simulated clock, sockets and random numbers in place of the system's in all modules of the proxy.

Modules take ``monotonic_ns`` and the like by name when they are imported, so each such name is replaced once. What it
is replaced with asks the world that runs.
"""

import asyncio
import gc
import importlib
import io
import pkgutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import kafka_quota_proxy.proxy
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import _connect as _connect_to_store
from tests.simulation.clock import Clock
from tests.simulation.cluster_reader import SimulatedReader
from tests.simulation.disk import Disk, DiskModule
from tests.simulation.relay_sockets import SimulatedRelaySockets
from tests.simulation.sockets import SelectModule, SocketModule
from tests.simulation.store_disk import StoreConnection
from tests.simulation.threads import ThreadingModule

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Cluster
    from tests.simulation.process import Process, ProcessLoop
    from tests.simulation.world import World

_NS_PER_S: Final = 1_000_000_000
_LOOK_NS: Final = 100
_PACKAGE: Final = "kafka_quota_proxy."


class _Current:
    """The world that runs, and its clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.world: World | None = None

    def enter(self, world: "World") -> None:
        """Let the proxy's modules use the clock, network and threads of this world."""
        self.world = world
        self.clock = world.clock

    def monotonic_ns(self) -> int:
        """Return the time, which is later at each call: the proxy measures how long a piece of its own work takes."""
        self.clock.now_ns += _LOOK_NS
        return self.clock.now_ns

    def monotonic(self) -> float:
        return self.clock.now_ns / _NS_PER_S

    def time_ns(self) -> int:
        return self.clock.wall_ns

    def time(self) -> float:
        return self.clock.wall_ns / _NS_PER_S


current: Final = _Current()
_REPLACED: Final = {
    id(time.monotonic_ns): current.monotonic_ns,
    id(time.monotonic): current.monotonic,
    id(time.perf_counter_ns): current.monotonic_ns,
    id(time.perf_counter): current.monotonic,
    id(time.time_ns): current.time_ns,
    id(time.time): current.time,
}


class _Replacement(NamedTuple):
    module: ModuleType
    name: str
    original: object
    stand_in: object


_replacements: Final[list[_Replacement]] = []


def running_process() -> "Process":
    """Return the simulated process whose callback or thread runs."""
    world = current.world
    if world is not None and world.thread is not None:
        return world.thread.process
    return cast("ProcessLoop", asyncio.get_running_loop()).process


class _TimeModule:
    """Stands for the module ``time``."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(time, name)
        return _REPLACED.get(id(found), found)


def _running_disk() -> Disk:
    return running_process().disk


def _open_store(path: Path, options: str = "?mode=rw") -> StoreConnection:
    return _running_disk().store.connect(path, options, _connect_to_store)


def _running_cluster() -> "Cluster":
    assert current.world is not None
    return current.world.scenario.cluster


def _file_version(_: object) -> int:
    """Stand for the state of the configuration file, which real clocks would make different in each run."""
    return running_process().proxy.file_version


def _sleep(time_s: float) -> None:
    world = current.world
    assert world is not None
    assert world.thread is not None, "only a thread sleeps"
    world.thread.resume_later(time_s * 1_000)
    world.thread.pause()


@contextmanager
def installed() -> Iterator[None]:
    """Replace the system in all modules of the proxy, until the end of the ``with`` block."""
    if not _replacements:
        _find_replacements()
    for one in _replacements:
        setattr(one.module, one.name, one.stand_in)
    try:
        yield
    finally:
        for one in _replacements:
            setattr(one.module, one.name, one.original)


def _find_replacements() -> None:
    for module in _modules():
        for name, value in tuple(vars(module).items()):
            if id(value) in _REPLACED:
                _replacements.append(_Replacement(module, name, value, _REPLACED[id(value)]))
            elif value is time:
                _replacements.append(_Replacement(module, name, value, _TimeModule()))
    server = "proxy.server."
    _replace(server + "clients.acceptor", "socket", SocketModule(running_process))
    _replace(server + "brokers.cluster_listeners", "socket", SocketModule(running_process))
    _replace(server + "sweeps", "select", SelectModule(running_process))
    # A sweep looks at connections only when the process is large, so let it always look.
    _replace(server + "sweeps", "resident_bytes", lambda: 1 << 62)
    # The loop of a simulated world is never late, and the timers would be many of a world's steps.
    _replace(server + "loop_lag", "PERIOD_S", 3_600.0)
    _replace(server + "server", "make_sockets", lambda: SimulatedRelaySockets(running_process()))
    _replace(server + "server", "sys", SimpleNamespace(stdout=io.StringIO()))
    _replace(server + "config_reloader", "file_state", _file_version)
    threading = ThreadingModule(running_process)
    _replace("proxy.usage.sink", "threading", threading)
    _replace("proxy.runtime.in_thread", "threading", threading)
    _replace("proxy.replication.config_watcher", "threading", threading)
    _replace("proxy.replication.config_watcher", "_connect", lambda *_: SimulatedReader(_running_cluster()))
    _replace("proxy.kafka_client.loop_thread", "threading", None)  # it would run in real time
    _replace("proxy.rules.sqlite.rule_database", "_connect", _open_store)
    disk = DiskModule(_running_disk)
    _replace("proxy.usage.segments", "os", disk)
    _replace("proxy.runtime.disk_access", "os", disk)
    _replace("proxy.rules.sqlite.rule_database", "os", disk)
    _replace("proxy.usage.segments", "sleep", lambda _: None)
    _replace("proxy.runtime.isolation", "sleep", _sleep)
    _replace(server + "server", "gc", SimpleNamespace(collect=lambda: None, freeze=lambda: None))


def _modules() -> list[ModuleType]:
    """Import and return all modules of the proxy, but its commands."""
    found = [sys.modules[name] for name in sorted(sys.modules) if name.startswith(_PACKAGE)]
    for info in pkgutil.walk_packages(kafka_quota_proxy.proxy.__path__, "kafka_quota_proxy.proxy."):
        if ".cli" not in info.name and not info.name.endswith("__main__"):
            importlib.import_module(info.name)
    found = [sys.modules[name] for name in sorted(sys.modules) if name.startswith(_PACKAGE)]
    gc.collect()
    return found


def _replace(module_name: str, name: str, stand_in: object) -> None:
    module = sys.modules[_PACKAGE + module_name]
    _replacements.append(_Replacement(module, name, getattr(module, name), stand_in))
