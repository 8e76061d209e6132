"""Runs Apache Kafka in KRaft mode. Each node is a broker and a controller in one process."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.end_to_end.support import frames
from tests.end_to_end.support.artifacts import java, kafka_classpath
from tests.end_to_end.support.processes import (
    HarnessError,
    Process,
    free_port,
    run,
    scratch,
    scratch_directory,
    wait_until,
)
from tests.end_to_end.support.quick_java import QUIET, class_archive, reading, run_java, writing

DIRECT: Final = "DIRECT"
PROXIED: Final = "PROXIED"
REPLICATION: Final = "REPLICATION"
_CONTROLLER: Final = "CONTROLLER"
# A killed broker can register again only after its session has expired, by default after 9 s. Only some tests shorten
# the session, because on a busy machine healthy brokers would be fenced.
QUICK_TO_RETURN: Final[dict[str, str | int]] = {"broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 500}
_START_TIMEOUT_S: Final = 60
_LOGS_REQUESTS: Final = "-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug"
# "connection":"127.0.0.1:9092-127.0.0.9:51234-0-1"
_CONNECTION: Final = re.compile(r'"connection":"[^"]*?-([^"]*?):\d+-\d+(?:-\d+)?"')
_API: Final = re.compile(r'"requestApiKeyName":"(\w+)"')
_NAMES_OF_NODE: Final = "meta.properties"

# The output of StorageTool in this run, by release.
_formatted: dict[str, Path] = {}
# Class paths for which this run has tried to write an archive.
_archived: set[Path] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A broker's listener. It advertises the port of the test's proxy, or its own port if it has no proxy."""

    port: int
    advertised_port: int

    @property
    def address(self) -> str:
        """Return ``host:port`` of the broker itself."""
        return f"127.0.0.1:{self.port}"

    @property
    def advertised_address(self) -> str:
        """Return the advertised ``host:port``, at which the test's proxy listens."""
        return f"127.0.0.1:{self.advertised_port}"


class Request(NamedTuple):
    api: str  # PRODUCE, FETCH, ...
    source: str  # the source address


class Broker:
    """A node of the cluster. It keeps its ports and data when it is restarted."""

    def __init__(
        self,
        *,
        node_id: int,
        directory: Path,
        classpath: str,
        listeners: Mapping[str, Endpoint],
        jmx_port: int | None,
        options: Sequence[str] = (),
    ) -> None:
        self.node_id = node_id
        self.listeners = listeners
        self.jmx_port = jmx_port
        self.properties = directory / "server.properties"
        self.data = directory / "data"
        self._classpath = classpath
        self._options = options
        self._log = directory / "broker.log"
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        if self._process is None:
            raise HarnessError(f"broker {self.node_id} is not running")
        return self._process

    def start(self) -> None:
        """Start the process without waiting until it answers."""
        command = [java(), "-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", QUIET, *self._options]
        if self.jmx_port is not None:
            command += [
                "-Dcom.sun.management.jmxremote.authenticate=false",
                "-Dcom.sun.management.jmxremote.ssl=false",
                "-Dcom.sun.management.jmxremote.host=127.0.0.1",
                "-Djava.rmi.server.hostname=127.0.0.1",
                f"-Dcom.sun.management.jmxremote.port={self.jmx_port}",
                f"-Dcom.sun.management.jmxremote.rmi.port={self.jmx_port}",
            ]
        self._process = Process([*command, "-cp", self._classpath, "kafka.Kafka", self.properties], log=self._log)

    def wait(self) -> None:
        """Wait until every listener answers a request. Raises HarnessError if that takes too long."""
        process = self.process

        def is_up() -> bool:
            if not process.is_running:
                raise HarnessError(f"exit status {process.exit_status}")
            return all(frames.answers(endpoint.port) for endpoint in self.listeners.values())

        try:
            wait_until(is_up, timeout_s=_START_TIMEOUT_S, what="answers on its listeners")
        except HarnessError as error:
            tail = process.log_tail()
            self.kill()
            raise HarnessError(f"Kafka broker {self.node_id} did not come up: {error}\n{tail}") from error

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def requests(self, listener: str) -> Iterator[Request]:
        """Yield the logged requests at a listener. Needs ``Kafka(logs_requests=True)``."""
        wanted = f'"listener":"{listener}"'
        with self._log.open(errors="replace") as lines:
            for line in lines:
                if wanted in line and (found := _CONNECTION.search(line)) and (api := _API.search(line)):
                    yield Request(api=api[1], source=found[1])

    def stop(self, *, timeout_s: float = 30) -> None:
        """Shut the broker down with SIGTERM, or with SIGKILL after ``timeout_s``."""
        self.process.stop(timeout_s=timeout_s)
        self._process = None

    def kill(self) -> None:
        """Kill with SIGKILL."""
        self.process.kill()
        self._process = None

    def restart(self) -> None:
        """Restart the broker with the same ports and data, and wait until it answers."""
        if self._process is not None:
            self.stop()
        self.start()
        self.wait()


class Kafka:
    """A cluster, which runs during a ``with`` block.

    Each broker has a listener ``DIRECT``, which advertises itself, and further listeners. A proxied listener advertises
    an unused port for the test's proxy.

    Args:
        version: The Kafka release.
        nodes: The number of brokers. Node ids start at 1.
        proxied: The names of the proxied listeners.
        inter_broker_proxied: Whether brokers reach each other only at a proxied listener ``REPLICATION``.
        unproxied: The names of further listeners, which advertise themselves.
        config: Broker settings in addition to those that this class makes.
        jmx: Whether each broker opens a JMX port.
        logs_requests: Whether each broker logs every request, for ``Broker.requests``.
        plugins: Java sources, which are compiled and put on the brokers' class path.
        java_options: Further options of each broker's JVM.
    """

    def __init__(
        self,
        version: str,
        *,
        nodes: int = 1,
        proxied: Sequence[str] = (PROXIED,),
        inter_broker_proxied: bool = False,
        unproxied: Sequence[str] = (),
        config: Mapping[str, str | int] | None = None,
        jmx: bool = False,
        logs_requests: bool = False,
        plugins: Sequence[Path] = (),
        java_options: Sequence[str] = (),
    ) -> None:
        self.version = version
        self.brokers: list[Broker] = []
        self._nodes = nodes
        self._proxied = (*proxied, REPLICATION) if inter_broker_proxied else proxied
        self._config = config or {}
        self._jmx = jmx
        self._unproxied = unproxied
        self._plugins = plugins
        self._options: tuple[str, ...] = (*java_options, *((_LOGS_REQUESTS,) if logs_requests else ()))
        self._controllers: dict[int, int] = {}  # port by node id

    def __enter__(self) -> Self:
        self.classpath = kafka_classpath(self.version)
        self._options += self._start_options()
        self._scratch = scratch(f"kafka-{self.version}")
        try:
            self._directory = self._scratch.__enter__()
            if self._plugins:
                self._compile(self._directory / "plugins")
            self._cluster_id = _random_id()
            self._start_controllers()
            self.brokers = [self._plan(node_id) for node_id in range(1, self._nodes + 1)]
            for broker in self.brokers:
                self._start(broker)
            for broker in self.brokers:
                broker.wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def broker(self) -> Broker:
        return self.brokers[0]

    @property
    def bootstrap_servers(self) -> str:
        """Return ``host:port`` of all direct listeners, separated by commas."""
        return self.addresses(DIRECT)

    def addresses(self, listener: str) -> str:
        """Return ``host:port`` of this listener at each broker, separated by commas."""
        return ",".join(broker.listeners[listener].address for broker in self.brokers)

    def listener(self, name: str = PROXIED) -> Endpoint:
        """Return a listener of the first broker."""
        return self.broker.listeners[name]

    def run_java(
        self, main_class: str, *arguments: str | Path, timeout_s: float = 120, classpath: str | None = None
    ) -> str:
        """Run a Java class or source file, and return its standard output.

        By default the class path is that of this release. A source file must not declare a package.
        """
        return run_java(main_class, *arguments, classpath=classpath or self.classpath, timeout_s=timeout_s)

    def add_broker(self) -> Broker:
        """Start one more broker, which is no controller, and wait until it answers."""
        broker = self._plan(max(broker.node_id for broker in self.brokers) + 1)
        self.brokers.append(broker)
        self._start(broker)
        broker.wait()
        return broker

    def _compile(self, directory: Path) -> None:
        run(["javac", "-cp", self.classpath, "-d", directory, *self._plugins], timeout_s=60)
        self.classpath = f"{self.classpath}:{directory}"

    def _start_controllers(self) -> None:
        """Choose the port of each node's controller, which starts together with the node."""
        self._controllers = {node_id: free_port() for node_id in range(1, self._nodes + 1)}

    def _start(self, broker: Broker) -> None:
        self._format(broker)
        broker.start()

    def _format(self, broker: Broker) -> None:
        """Format the data directory. The result is cached, because it depends only on the release."""
        if self.version not in _formatted:
            self.run_java("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", broker.properties)
            kept = scratch_directory(f"formatted-{self.version}")
            _formatted[self.version] = shutil.copytree(broker.data, kept, dirs_exist_ok=True)
            return
        shutil.copytree(_formatted[self.version], broker.data)
        (broker.data / _NAMES_OF_NODE).write_text(
            f"version=1\ncluster.id={self._cluster_id}\nnode.id={broker.node_id}\ndirectory.id={_random_id()}\n"
        )

    def _start_options(self) -> tuple[str, ...]:
        """Return the Java options that load the class archive, which is written first if it is missing."""
        archive = class_archive(self.classpath)
        if not archive.exists() and archive not in _archived:
            _archived.add(archive)
            draft = archive.with_name(f".{os.getpid()}-{archive.name}")
            trainee = self._trainee()
            trainee._options = writing(draft)
            try:
                with trainee:
                    trainee.broker.stop(timeout_s=120)  # it writes the archive, for half a minute if others are busy
                draft.rename(archive)
            finally:
                draft.unlink(missing_ok=True)
        return reading(archive)

    def _trainee(self) -> Kafka:
        return Kafka(self.version)

    def _plan(self, node_id: int) -> Broker:
        home = self._directory / f"node-{node_id}"
        home.mkdir()
        broker = Broker(
            node_id=node_id,
            directory=home,
            classpath=self.classpath,
            listeners=self._listeners(),
            jmx_port=free_port() if self._jmx else None,
            options=self._options,
        )
        properties = self._properties(broker)
        broker.properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return broker

    def _listeners(self) -> dict[str, Endpoint]:
        listeners = {name: Endpoint(port=free_port(), advertised_port=free_port()) for name in self._proxied}
        for name in (*self._unproxied, DIRECT):
            port = free_port()
            listeners[name] = Endpoint(port=port, advertised_port=port)
        return listeners

    def _properties(self, broker: Broker) -> dict[str, str | int]:
        copies = min(3, self._nodes)
        bound = {name: endpoint.port for name, endpoint in broker.listeners.items()}
        names = [*bound, _CONTROLLER]
        controller_port = self._controllers.get(broker.node_id)
        if controller_port is not None:
            bound[_CONTROLLER] = controller_port
        ports = {name: endpoint.advertised_port for name, endpoint in broker.listeners.items()}
        own: dict[str, str | int] = {
            "process.roles": "broker" if controller_port is None else "broker,controller",
            "node.id": broker.node_id,
            "controller.quorum.voters": ",".join(
                f"{node}@127.0.0.1:{port}" for node, port in self._controllers.items()
            ),
            "controller.listener.names": _CONTROLLER,
            "inter.broker.listener.name": REPLICATION if REPLICATION in broker.listeners else DIRECT,
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in bound.items()),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "log.dirs": str(broker.data),
            "num.partitions": 1,
            "offsets.topic.num.partitions": 3,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 3,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "socket.listen.backlog.size": 1_000,  # with Kafka's default of 50, many new connections take minutes
        }
        return {**own, **self._config}

    def _end(self) -> None:
        for broker in self.brokers:
            if broker.is_running:
                broker.kill()
        self.brokers = []
        self._scratch.__exit__(None, None, None)


def _random_id() -> str:
    # The zero byte makes the first character a letter, because a "-" would look like an option.
    return base64.urlsafe_b64encode(b"\0" + os.urandom(15)).decode().rstrip("=")
