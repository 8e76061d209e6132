"""Threads that sample the proxy and the cluster while a soak runs."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import confluent_kafka
from confluent_kafka.admin import AdminClient

from tests.end_to_end.support.clients import QUIET
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import HarnessError
from tests.end_to_end.support.proxy import Metrics, Proxy
from tests.end_to_end.support.watch import Watch
from tests.soak.checks import Life, Span

_LOOKS_PER_SECOND: Final = 5
_SCRAPE_EVERY_S: Final = 10
_MIB: Final = 2**20
_PROBE_TIMEOUT_S: Final = 5
_ESTABLISHED: Final = "01"
_WARM_UP_CONNECTIONS: Final = 4_000
_SHORT_ID: Final = "short"
_RETRY_S: Final = 0.1
_EVERY_S: Final = 0.2
_INTERNAL_ERRORS: Final = "kafka_quota_proxy_internal_errors_total"


class ProxySampler(Watch):
    """Samples memory, descriptors, loop lag and metrics of the running proxy into its present life.

    Clients decide how many connections they have. So two descriptors for each connection that a client has open, as the
    system says, do not count. ``ports`` are those of the proxy's listeners.

    The loop lag is how long ``/livez`` takes: the proxy's only event loop answers it, without I/O of its own.
    """

    def __init__(self, proxy: Proxy, admin_port: int, ports: range) -> None:
        super().__init__(every_s=1 / _LOOKS_PER_SECOND)
        self.metrics: Metrics | None = None
        self.throttled: dict[str, float] = {}  # throttled requests by client-id, of finished lives too
        self._proxy = proxy
        self._admin_port = admin_port
        self._ports = ports
        self._life: Life | None = None
        self._pid = 0
        self._lock = threading.Lock()
        self._looks = 0
        self._scraped_s = 0.0
        self._throttled_before: dict[str, float] = {}

    def begin(self, life: Life) -> None:
        """Sample a proxy that has just started."""
        with self._lock:
            self._life, self._pid = life, self._proxy.process.pid
            self._throttled_before = dict(self.throttled)

    def end(self) -> None:
        """Scrape the metrics for the last time, and sample no more until the next start."""
        with self._lock:
            self._scrape()
            self._life = None

    def _look(self) -> None:
        with self._lock:
            life = self._life
            if life is None:
                return
            try:
                self._sample(life)
            except (OSError, http.client.HTTPException, HarnessError) as error:
                life.faults.append(f"did not answer: {error!r}")
                self._life = None  # the soak finds out whether it still runs

    def _sample(self, life: Life) -> None:
        now_s = time.time()
        if self._looks % _LOOKS_PER_SECOND == 0:
            descriptors = len(list(Path(f"/proc/{self._pid}/fd").iterdir()))
            life.descriptors.append((now_s, descriptors - 2 * connections_to(self._ports)))
            life.memory.append((now_s, self._proxy.process.memory_bytes() / _MIB))
        self._looks += 1
        started_s = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._admin_port, timeout=_PROBE_TIMEOUT_S)
        connection.request("GET", "/livez")
        connection.getresponse().read()
        life.lag.append((now_s, (time.perf_counter() - started_s) * 1_000))
        connection.close()
        if now_s >= self._scraped_s + _SCRAPE_EVERY_S:
            self._scrape()

    def _scrape(self) -> None:
        if self._life is None:
            return
        self._scraped_s = time.time()
        try:
            metrics = self._proxy.metrics()
        except (OSError, urllib.error.URLError) as error:
            self._life.faults.append(f"no metrics: {error!r}")
            return
        self.metrics = metrics
        self._life.internal_errors = metrics.total(_INTERNAL_ERRORS)
        name = "kafka_quota_proxy_throttled_requests_total"
        for client_id in metrics.label_values(name, "client_id"):
            now = metrics.total(name, client_id=client_id)
            self.throttled[client_id] = self._throttled_before.get(client_id, 0) + now


def connections_to(ports: range, table: Path = Path("/proc/net/tcp")) -> int:
    """Return how many programs of this machine have an established IPv4 connection to these ports."""
    rows = (line.split() for line in table.read_text().splitlines()[1:])
    return sum(row[3] == _ESTABLISHED and int(row[2].rpartition(":")[2], 16) in ports for row in rows)


class ShortConnections:
    """Opens and closes connections: some thousand to warm a new process of the proxy up, then some each second.

    An ended connection is garbage in cycles. The proxy has Python collect it after 50,000 allocations, which are some
    1,900 connections. So its memory rises with these, by some 5 MiB, and is level once they have been collected.
    """

    def __init__(self, port: int, life: Life, *, least_s: float) -> None:
        self._port = port
        self._life = life
        self._least_s = least_s
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Open no more, because the proxy's life ends."""
        self._port = 0
        self._thread.join()

    def _run(self) -> None:
        done = 0
        while self._port and done < _WARM_UP_CONNECTIONS:
            done += self._open_one()
        while self._port and time.time() < self._life.started_s + self._least_s:
            time.sleep(_RETRY_S)
        if self._port:
            self._life.warm_s = time.time()
        while self._port:
            self._open_one()
            time.sleep(_EVERY_S)

    def _open_one(self) -> bool:
        try:
            with raw_client(self._port, client_id=_SHORT_ID, timeout_s=_PROBE_TIMEOUT_S) as client:
                client.api_versions()
        except (OSError, EOFError):
            time.sleep(_RETRY_S)  # the broker that answers for the bootstrap port may be away
            return False
        return True


class Leaders(Watch):
    """Notes when the single partition of each topic gets another leader, as the brokers say."""

    def __init__(self, kafka: Kafka, topics: Sequence[str]) -> None:
        super().__init__(every_s=0.5)
        self.moves: dict[str, list[Span]] = {topic: [] for topic in topics}
        self._leader: dict[str, int] = {}
        self._seen_s: dict[str, float] = {}
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})

    def _look(self) -> None:
        asked_s = time.time()
        try:
            found = self._admin.list_topics(timeout=3).topics
        except confluent_kafka.KafkaException:
            return
        for topic, moves in self.moves.items():
            leader = found[topic].partitions[0].leader if topic in found and found[topic].partitions else -1
            if leader < 0:
                continue
            before = self._leader.get(topic)
            if before is not None and before != leader:
                # A broker may answer from metadata that is a moment old.
                moves.append(Span(self._seen_s[topic] - 1, time.time()))
            self._leader[topic] = leader
            self._seen_s[topic] = asked_s

    def is_in_sync(self) -> bool:
        """Return whether every replica of every topic is in sync."""
        found = self._admin.list_topics(timeout=10).topics
        return all(
            len(part.isrs) == len(part.replicas) for topic in self.moves for part in found[topic].partitions.values()
        )
