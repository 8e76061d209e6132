"""A proxy of the simulated world: one machine with a configuration file, and the processes that run there in turn."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from kafka_quota_proxy.config.errors import ConfigError, StartError
from kafka_quota_proxy.config.load import Loaded, load
from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.proxy.server.active_rules import PreparedFile
from kafka_quota_proxy.proxy.server.config_reloader import Reloader
from kafka_quota_proxy.proxy.server.server import Server
from tests.simulation.disk import Disk
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

# How long a supervisor waits before it starts a proxy again.
RESTART_MS: Final = 500.0


class Proxy:
    """The real server, reloader and file, on the machine ``host``.

    Attributes:
        settings: The content of the configuration file.
        number: How many processes were started so far.
        process: The process that runs, or the last one.
        is_running: Whether a process runs, also while it drains.
        on_applied: Called with the content of the file that is in force from now on.
        memory_divisor: By how much less memory a process may use than its file says.
        is_wanted: Whether the supervisor starts a process again when one has ended.
    """

    def __init__(self, world: "World", host: str, folder: Path, settings: dict[str, Any]) -> None:
        self.world = world
        self.host = host
        self.folder = folder
        self.path = folder / "proxy.yaml"
        self.settings = settings
        self.number = 0
        self.is_running = self.is_wanted = False
        self.memory_divisor = 1
        self.file_version = 0
        self.on_applied: Callable[[Mapping[str, Any]], None] = lambda _: None
        self._settings_by_hash: dict[str, Mapping[str, Any]] = {}
        self.process: Process
        self.server: Server | None = None
        self.disk = Disk(folder, world.random_of(f"disk-{host}"))
        # Tasks of killed processes must not be collected: that would run their ``finally`` blocks.
        self.remains: list[object] = []
        self._write(settings)

    def start(self) -> None:
        """Start a process, unless one runs."""
        self.is_wanted = True
        if self.is_running:
            return
        self.number += 1
        self.is_running = True
        self.process = Process(self.world, self.host, self.world.random_of(f"proxy-{self.host}-{self.number}"))
        self.process.proxy = self
        self.process.disk = self.disk
        self.world.ledger.proxy_started(self.number)
        number = self.number
        task = self.process.spawn(self._serve())
        task.add_done_callback(lambda task: self._ended(number, task))
        self.remains.append(task)

    async def _serve(self) -> None:
        try:
            loaded = load(self.path, reads_files=False)
        except ConfigError:
            return  # the supervisor tries again
        self.server = server = Server(self._with_less_memory(loaded.config))
        self.on_applied(self._settings_by_hash[loaded.hash])
        self.reloader = Reloader(self.path, loaded, on_loaded=partial(self._apply, server))
        try:
            await server.run(companion=self.reloader.watch)
        except* StartError:
            pass  # the supervisor tries again

    def _with_less_memory(self, config: ProxyConfig) -> ProxyConfig:
        return replace(config, max_buffered_bytes=config.max_buffered_bytes // self.memory_divisor)

    async def _apply(self, server: Server, new: Loaded) -> None:
        put_in_force = server.rules.put_in_force

        def put_and_tell(file: PreparedFile) -> None:
            put_in_force(file)
            self.on_applied(self._settings_by_hash[new.hash])

        with patch.object(server.rules, "put_in_force", put_and_tell):
            await server.reload(self._with_less_memory(new.config))

    def _ended(self, number: int, task: "asyncio.Task[None]") -> None:
        if number != self.number:
            return
        self.is_running = False
        self.world.ledger.proxy_ended(number, is_crash=False)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.fail("the proxy runs", f"its process ended with {error!r}")
        if self.is_wanted:
            # The system resets what is left, such as a connection that was accepted while the process was hurried.
            self.remains.append(self.process)
            self.world.call_later(0.0, self.process.kill)
            self.world.call_later(RESTART_MS, self._restart)

    def _restart(self) -> None:
        if self.is_wanted:
            self.start()

    def stop(self) -> None:
        """Ask the process to stop in order, as SIGTERM does. A second call hurries it."""
        self.is_wanted = False
        self.signal_stop()

    def signal_stop(self) -> None:
        """Send SIGTERM. If ``is_wanted``, the supervisor starts another process afterwards."""
        server = self.server
        if self.is_running and server is not None:
            self.world.ledger.proxy_stopping(self.number)
            self.process.loop.call_soon(server.stop)

    def kill(self) -> None:
        """Kill the process, as SIGKILL or a loss of power does. The supervisor starts another one."""
        if not self.is_running:
            return
        self.remains += [self.process, self.server]
        self.process.kill()
        self.disk.process_ended()
        self.is_running = False
        self.server = None
        self.world.ledger.proxy_ended(self.number, is_crash=True)
        if self.is_wanted:
            self.world.call_later(RESTART_MS, self._restart)

    def waits(self) -> list[str]:
        """Return what the next requests of each client wait for, and on how many connections."""
        found = Counter(
            f"{one.state.account.client_id or 'nobody'} from {one.state.account.peer_host} waits for {by.value}"
            for listener in (() if self.server is None else self.server.listeners)
            for one in listener.connections
            if (by := one.state.blocked_by) is not None
        )
        return [f"{line}, on {count} connections" for line, count in found.items()]

    def write(self, settings: Mapping[str, Any]) -> None:
        """Replace the configuration file. The process finds that by itself."""
        self.settings = dict(settings)
        self._write(self.settings)

    def write_text(self, text: str) -> None:
        """Write any text into the configuration file."""
        self.path.write_text(text, encoding="utf-8")
        self.file_version += 1

    def _write(self, settings: Mapping[str, Any]) -> None:
        text = json.dumps(settings, indent=0)  # JSON is YAML, and quicker to write
        self._settings_by_hash[hashlib.sha256(text.encode()).hexdigest()[:16]] = settings
        self.write_text(text)
