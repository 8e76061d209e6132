"""The product under test: ``python -m proxy run FILE`` as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.error import HTTPError

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.end_to_end.support.kafka import PROXIED, REPLICATION, Broker, Kafka
from tests.end_to_end.support.processes import HarnessError, Process, free_port, scratch, wait_until

Settings: TypeAlias = Mapping[str, Any]

_ROOT: Final = Path(__file__).parents[3]
_LISTENING: Final = re.compile(r"listening on (\S+):(\d+) \((\S+)\) -> (\S+)")
_START_TIMEOUT_S: Final = 20
_RELOADED_AT: Final = "kafka_quota_proxy_config_last_reload_timestamp_seconds"
_RELOAD_WORKED: Final = "kafka_quota_proxy_config_last_reload_successful"

# Who listens where, by address. A cluster has one port for its proxy: only one at a time can stand in front of it.
_listening: dict[str, Proxy] = {}


class Metrics:
    """One scrape of ``/metrics``."""

    def __init__(self, text: str) -> None:
        """Keep Prometheus' text format; only what is asked for is taken apart, for there may be a lot of it."""
        self._lines = text.split("\n")  # and nowhere else: client-ids may hold any character

    def total(self, name: str, **labels: str) -> float:
        """The sum of the series with this name and (at least) these labels; 0 where there is none."""
        return sum(self.values(name, **labels))

    def values(self, name: str, **labels: str) -> list[float]:
        """The value of each series with this name and (at least) these labels."""
        return [sample.value for sample in self._samples(name) if labels.items() <= sample.labels.items()]

    def label_values(self, name: str, label: str) -> set[str]:
        """What the series of this name carry in a label."""
        return {sample.labels[label] for sample in self._samples(name) if label in sample.labels}

    def _samples(self, name: str) -> list[Sample]:
        text = "".join(f"{line}\n" for line in self._lines if line.startswith((f"{name}{{", f"{name} ")))
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


class Proxy:
    """A proxy for the length of a ``with`` block, in front of the first broker of a cluster or of any ports.

    Args:
        settings: The configuration; ``admin`` and, where ``upstream`` is a cluster, ``listeners`` are filled in
            where they are absent: one listener for each of the first broker's proxied ones, under the same name, and
            ``REPLICATION-1``, ``REPLICATION-2``, … for the brokers' own where the cluster has them proxied.
        upstream: The cluster, or nothing when ``settings`` names its listeners itself.
        module: What is run in the place of ``proxy``, and takes the same arguments.
    """

    def __init__(self, settings: Settings, upstream: Kafka | None = None, *, module: str = "proxy") -> None:
        """Only remember what is wanted; entering the ``with`` block starts it."""
        self._module = module
        self._settings = _completed(settings, upstream)
        self._process: Process | None = None
        self._started_in = ""

    def __enter__(self) -> Self:
        """Write the file, start the proxy, wait until it listens."""
        self._scratch = scratch("proxy")
        directory = self._scratch.__enter__()
        self.file = directory / "proxy.yaml"
        self._log = directory / "proxy.log"
        try:
            self.write(self._settings)
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the proxy and remove its files; what it logged is shown where the test failed."""
        if error is not None and self._process is not None:
            error.add_note(f"The proxy's log ends:\n{self._process.log_tail()}")
        self._end()

    @property
    def process(self) -> Process:
        """The running process."""
        if self._process is None:
            raise HarnessError("the proxy is not running")
        return self._process

    def port(self, listener: str = PROXIED) -> int:
        """The port of a listener."""
        for entry in self._settings["listeners"]:
            if entry["name"] == listener:
                return int(entry["bind"].rpartition(":")[2])
        raise KeyError(listener)

    def address(self, listener: str = PROXIED) -> str:
        """``host:port`` of a listener."""
        return f"127.0.0.1:{self.port(listener)}"

    @property
    def log(self) -> str:
        """All that the proxy wrote since it was last started."""
        return self.process.output()

    def start(self) -> None:
        """Start it (again) with the file as it is; returns when every listener is announced.

        Raises:
            HarnessError: It did not come up, or another Proxy of this run is where it should listen.
        """
        self._take_addresses()
        self._log.unlink(missing_ok=True)
        self._process = Process([sys.executable, "-m", self._module, "run", self.file], log=self._log, cwd=_ROOT)
        process = self._process
        wanted = {entry["name"] for entry in self._settings["listeners"]}

        def listens() -> bool:
            if not process.is_running:
                raise HarnessError(f"exit status {process.exit_status}")
            return wanted <= {found[3] for found in _LISTENING.finditer(process.output())}

        try:
            wait_until(listens, timeout_s=_START_TIMEOUT_S, what="announces its listeners")
        except HarnessError as error:
            tail = process.log_tail()
            self.kill()
            raise HarnessError(f"the proxy did not come up: {error}\n{tail}") from error

    def stop(self) -> int:
        """End it in good order and return its exit status."""
        status = self.process.stop()
        self._give_addresses_back()
        return status

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        self.process.kill()
        self._give_addresses_back()

    def write(self, settings: Settings | str) -> None:
        """Write the configuration file, whole, without telling the proxy; a string is written as it is."""
        text = settings if isinstance(settings, str) else yaml.safe_dump(dict(settings), sort_keys=False)
        draft = self.file.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.file)

    def edit(self, settings: Settings | str) -> None:
        """Write the configuration file, completed with the listeners and the admin port that the proxy already has."""
        if not isinstance(settings, str):
            settings = {**settings, "listeners": self._settings["listeners"], "admin": self._settings["admin"]}
        self.write(settings)

    def reload(self, settings: Settings | str) -> bool:
        """Edit the file, send SIGHUP, wait for the outcome; return whether the proxy took it."""
        before = self.metrics()
        worked, at = before.total(_RELOAD_WORKED), before.total(_RELOADED_AT)
        log_size = len(self.log)
        self.edit(settings)
        self.process.signal(signal.SIGHUP)

        def is_settled() -> bool:
            after = self.metrics()
            return (after.total(_RELOAD_WORKED), after.total(_RELOADED_AT)) != (worked, at) or (
                after.total(_RELOAD_WORKED) == 0 and len(self.log) > log_size
            )

        wait_until(is_settled, timeout_s=10, what="the proxy reloads its file")
        return self.metrics().total(_RELOAD_WORKED) == 1

    def metrics(self) -> Metrics:
        """Scrape ``/metrics``."""
        return Metrics(self.admin("/metrics"))

    def is_ready(self) -> bool:
        """Whether ``/readyz`` answers with a success."""
        try:
            self.admin("/readyz")
        except HTTPError as refusal:
            refusal.close()
            return False
        return True

    def admin(self, path: str) -> str:
        """Ask the admin port and return the body.

        Raises:
            urllib.error.HTTPError: The answer is not a success.
        """
        url = f"http://{self._settings['admin']['bind']}{path}"
        with urllib.request.urlopen(url, timeout=10) as response:
            body: bytes = response.read()
        return body.decode()

    def _take_addresses(self) -> None:
        addresses = [entry["bind"] for entry in self._settings["listeners"]]
        for address in addresses:
            other = _listening.get(address)
            if other is not None and other is not self and other.process.is_running:
                raise HarnessError(
                    f"another Proxy of this test run listens on {address}: the one of {other.file}, started in "
                    f"{other._started_in}. End it first, or give the two a cluster each"
                )
        self._started_in = os.environ.get("PYTEST_CURRENT_TEST", "no test")
        _listening.update(dict.fromkeys(addresses, self))

    def _give_addresses_back(self) -> None:
        self._process = None
        for address in [address for address, proxy in _listening.items() if proxy is self]:
            del _listening[address]

    def _end(self) -> None:
        if self._process is not None:
            self.kill()
        self._scratch.__exit__(None, None, None)


def _completed(settings: Settings, upstream: Kafka | None) -> dict[str, Any]:
    whole = dict(settings)
    whole.setdefault("admin", {"bind": f"127.0.0.1:{free_port()}"})
    if upstream is not None and "listeners" not in whole:
        whole["listeners"] = [
            {"name": name, "bind": endpoint.advertised_address, "upstream": endpoint.address}
            for name, endpoint in upstream.broker.listeners.items()
            if endpoint.advertised_port != endpoint.port and endpoint != upstream.broker.listeners.get(REPLICATION)
        ] + [replication_listener(broker) for broker in upstream.brokers if REPLICATION in broker.listeners]
    return whole


def replication_listener(broker: Broker) -> dict[str, Any]:
    """The entry of the file for the listener by which other brokers reach this one."""
    endpoint = broker.listeners[REPLICATION]
    return {
        "name": f"{REPLICATION}-{broker.node_id}",
        "bind": endpoint.advertised_address,
        "upstream": endpoint.address,
        "inter_broker": True,
        "node_id": broker.node_id,
    }
