"""Runs the proxy under test, ``python -m proxy run FILE``, as a process of its own."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
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
_CONFIG: Final = "kafka_quota_proxy_config_info"
_REFUSED: Final = "the configuration stays unchanged"
_RELOADED_AT: Final = "kafka_quota_proxy_config_last_reload_timestamp_seconds"
_RELOAD_WORKED: Final = "kafka_quota_proxy_config_last_reload_successful"

# The running proxies by address. A cluster advertises one port, so only one proxy at a time can be in front of it.
_listening: dict[str, Proxy] = {}


class Metrics:
    """One scrape of ``/metrics``."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")  # not splitlines(), because client-ids may contain any character

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the series with this name and at least these labels, or 0 if there are none."""
        return sum(self.values(name, **labels))

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the value of each series with this name and at least these labels."""
        return [sample.value for sample in self._samples(name) if labels.items() <= sample.labels.items()]

    def label_values(self, name: str, label: str) -> set[str]:
        """Return the values of a label in all series with this name."""
        return {sample.labels[label] for sample in self._samples(name) if label in sample.labels}

    def _samples(self, name: str) -> list[Sample]:
        text = "".join(f"{line}\n" for line in self._lines if line.startswith((f"{name}{{", f"{name} ")))
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


class Proxy:
    """A proxy, which runs during a ``with`` block, in front of a cluster or of any ports.

    Args:
        settings: The configuration. A missing ``admin`` is added. With ``upstream``, missing ``listeners`` are added:
            one for each proxied listener of the first broker, and one for each broker if ``REPLICATION`` is proxied.
        upstream: The cluster, or None if ``settings`` has listeners.
        module: The module to run in place of ``proxy``, with the same arguments.
        program: Makes the command line that runs a file with another proxy, such as an installed one.
    """

    def __init__(
        self,
        settings: Settings,
        upstream: Kafka | None = None,
        *,
        module: str = "proxy",
        program: Callable[[Path], Sequence[str | Path]] | None = None,
    ) -> None:
        self._command = program or (lambda file: [sys.executable, "-m", module, "run", file])
        self._is_installed = program is not None
        self._settings = _completed(settings, upstream)
        self._process: Process | None = None
        self._started_in = ""

    def __enter__(self) -> Self:
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
        """Stop the proxy and remove its files. Add the end of its log to a test's error."""
        if error is not None and self._process is not None:
            error.add_note(f"The proxy's log ends:\n{self._process.log_tail()}")
        self._end()

    @property
    def process(self) -> Process:
        if self._process is None:
            raise HarnessError("the proxy is not running")
        return self._process

    def port(self, listener: str = PROXIED) -> int:
        """Return the port of a listener."""
        for entry in self._settings["listeners"]:
            if entry["name"] == listener:
                return int(entry["bind"].rpartition(":")[2])
        raise KeyError(listener)

    def address(self, listener: str = PROXIED) -> str:
        """Return ``host:port`` of a listener."""
        return f"127.0.0.1:{self.port(listener)}"

    @property
    def admin_address(self) -> str:
        """``host:port`` of the admin port."""
        return str(self._settings["admin"]["bind"])

    @property
    def log(self) -> str:
        """Return the output since the last start."""
        return self.process.output()

    def start(self) -> None:
        """Start the proxy with the current file, and wait until it listens. Raises HarnessError if that fails."""
        self._take_addresses()
        self._log.unlink(missing_ok=True)
        # An installed proxy must not find the modules of the checkout.
        outside = {"cwd": self.file.parent, "env": {"PYTHONPATH": ""}}
        where: dict[str, Any] = outside if self._is_installed else {"cwd": _ROOT}
        self._process = Process(self._command(self.file), log=self._log, **where)
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
        """Stop the proxy with SIGTERM, and return the exit status."""
        status = self.process.stop()
        self._give_addresses_back()
        return status

    def kill(self) -> None:
        self.process.kill()
        self._give_addresses_back()

    def write(self, settings: Settings | str) -> None:
        """Write the configuration file, without a signal to the proxy. A string is written unchanged."""
        text = settings if isinstance(settings, str) else yaml.safe_dump(dict(settings), sort_keys=False)
        draft = self.file.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.file)

    def edit(self, settings: Settings | str) -> None:
        """Write the configuration file, and keep the present listeners and admin port."""
        if not isinstance(settings, str):
            settings = {**settings, "listeners": self._settings["listeners"], "admin": self._settings["admin"]}
        self.write(settings)

    def reload(self, settings: Settings | str) -> bool:
        """Edit the file, send SIGHUP, and return whether the reload succeeded."""
        at = self.metrics().total(_RELOADED_AT)
        log_size = len(self.log)
        self.edit(settings)
        wanted = hashlib.sha256(self.file.read_bytes()).hexdigest()[:16]
        self.process.signal(signal.SIGHUP)

        def is_settled() -> bool:
            after = self.metrics()
            if after.total(_RELOAD_WORKED) == 0:
                return _REFUSED in self.log[log_size:]
            # An earlier reload may have read the file just before the edit. So the hash must be the new file's.
            return after.total(_RELOADED_AT) != at and wanted in after.label_values(_CONFIG, "hash")

        wait_until(is_settled, timeout_s=10, what="the proxy reloads its file")
        return self.metrics().total(_RELOAD_WORKED) == 1

    def metrics(self) -> Metrics:
        """Scrape ``/metrics``."""
        return Metrics(self.admin("/metrics"))

    def is_ready(self) -> bool:
        """Return whether ``/readyz`` reports success."""
        try:
            self.admin("/readyz")
        except HTTPError as refusal:
            refusal.close()
            return False
        return True

    def admin(self, path: str) -> str:
        """Send a GET to the admin port, and return the body. Raises HTTPError if the status is not a success."""
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
    """Return the configuration of the listener at which other brokers reach this broker."""
    endpoint = broker.listeners[REPLICATION]
    return {
        "name": f"{REPLICATION}-{broker.node_id}",
        "bind": endpoint.advertised_address,
        "upstream": endpoint.address,
        "inter_broker": True,
        "node_id": broker.node_id,
    }
