"""``balance --follow`` divides a limit among proxies, while a user's load moves from one to another.

The short form has one broker. ``make test-pipeline`` has three brokers, and cuts off a proxy.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml

from tests.end_to_end.support.artifacts import KAFKA_4, spark_connector
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import DIRECT, PROXIED, Kafka
from tests.end_to_end.support.load import KIB, Answer, produce_flood
from tests.end_to_end.support.processes import Process, free_port, wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.relay import Relay
from tests.pipeline.support import JAVA_OPTIONS, SHORT_LIVED

REPOSITORY: Final = Path(__file__).parents[2]
LIMIT: Final = 3_000_000
NAMES: Final = ("p1", "p2", "p3")
REQUEST_BYTES: Final = 16 * KIB
STORE: Final = "kafka-quota-store"
# Rates are averages over this time. In a shorter one, single requests would count too much.
WINDOW_S: Final = 5.0
_STEP_S: Final = 0.5
TOLERANCE: Final = 0.05
SETTLED_S: Final = 20
SETTLED_AFTER_A_CUT_S: Final = 45
RELAYED: Final = ("RELAYED", "ALSO_RELAYED")
_LONGEST_S: Final = 300.0


class Place(NamedTuple):
    """The addresses of a proxy, its broker, its quota topic and its usage topic."""

    bind: str
    upstream: str
    store: str  # bootstrap servers
    usage: str


class Publisher:
    """Runs ``balance --follow`` in a ``with`` block."""

    def __init__(self, kafka: Kafka, directory: Path, *, usage: str, lease: str, every: str = "1s") -> None:
        limits = directory / "cluster.yaml"
        limits.write_text(yaml.safe_dump({"quotas": [{"user": "ANONYMOUS", "producer_byte_rate": LIMIT}]}))
        jars = ",".join(str(jar) for jar in spark_connector())
        servers = kafka.bootstrap_servers
        self._log = directory / "balance.log"
        self._command = [
            sys.executable, "-m", "kafka_quota_proxy.pipeline", "balance", "--follow", "--usage", f"kafka://{servers}/{usage}",
            "--limits", str(limits), "--to", f"kafka://{servers}/{STORE}", "--proxies", ",".join(NAMES),
            "--lease", lease, "--every", every, "--master", "local[2]", "--conf", f"spark.jars={jars}",
            "--conf", "spark.driver.memory=1g", "--conf", f"{JAVA_OPTIONS}={SHORT_LIVED}",
        ]  # fmt: skip

    def __enter__(self) -> Process:
        self._process = Process(self._command, log=self._log, env={"PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY)
        process = self._process
        wait_until(
            lambda: "1 rules" in process.output() or not process.is_running, timeout_s=120, what="balance --follow"
        )
        assert process.is_running, process.log_tail()
        return process

    def __exit__(self, *_: object) -> None:
        self._process.kill()


class Load:
    """The acknowledged bytes of all clients. Each client tries to send much more than the limit."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    @contextmanager
    def flowing(self, port: int, topic: str) -> Iterator[None]:
        """Run a client that floods and waits for throttle times, in a ``with`` block."""
        is_over = threading.Event()

        def run() -> None:
            self.answers += produce_flood(
                port,
                topic,
                client_id="flood",
                request_bytes=REQUEST_BYTES,
                seconds=_LONGEST_S,
                ahead=4,
                is_over=is_over.is_set,
            )

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def rate(self, from_s: float, until_s: float) -> float:
        """Return the acknowledged rate between two times, relative to the limit."""
        inside = sum(one.size_bytes for one in self.answers if from_s <= one.at_s < until_s)
        return inside / (until_s - from_s) / LIMIT

    def highest(self) -> float:
        times = sorted(one.at_s for one in self.answers)
        return max(rate for _, rate in self.windows(times[0], times[-1]))

    def windows(self, from_s: float, until_s: float) -> list[tuple[float, float]]:
        """Return the start and the rate of each window after ``from_s``. Rates are relative to the limit."""
        starts = [number * _STEP_S for number in range(int((until_s - from_s - WINDOW_S) / _STEP_S) + 1)]
        return [(start, self.rate(from_s + start, from_s + start + WINDOW_S)) for start in starts]


@contextmanager
def fleet(places: Sequence[Place], usage: str) -> Iterator[Sequence[Proxy]]:
    """Run a proxy at each place, with the configuration that the documentation shows."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Proxy(
                    {
                        "listeners": [
                            {"name": PROXIED, "bind": place.bind, "upstream": place.upstream, "node_id": number}
                        ],
                        "shaping": "paced",
                        "usage_log": {
                            "kafka": {"bootstrap_servers": place.usage, "topic": usage},
                            "interval": "1s",
                            "proxy": name,
                        },
                        "quotas_from": {"kafka": {"bootstrap_servers": place.store, "topic": STORE}},
                    }
                )
            )
            for number, (name, place) in enumerate(zip(NAMES, places, strict=True), start=1)
        ]


def is_close(rate: float) -> bool:
    """Return whether the rate is within 5 % of the limit."""
    return abs(rate - 1) <= TOLERANCE


def test_limit_follows_a_load_that_moves(kafka_4: Kafka, tmp_path: Path) -> None:
    usage, topic = create_topic(kafka_4), create_topic(kafka_4)
    servers = kafka_4.bootstrap_servers
    upstream = kafka_4.broker.listeners[DIRECT].address
    places = [Place(f"127.0.0.1:{free_port()}", upstream, servers, servers) for _ in NAMES]
    load = Load()
    with Publisher(kafka_4, tmp_path, usage=usage, lease="3s") as process, fleet(places, usage) as proxies:
        for name, proxy in zip(NAMES[:2], proxies, strict=False):
            with load.flowing(proxy.port(), topic):
                wait_until(lambda: f"{name} 2.94 MB/s" in process.output(), timeout_s=60, what=f"all is {name}'s")  # noqa: B023
                time.sleep(0.5)
                began_s = time.monotonic()
                time.sleep(3)
                ended_s = time.monotonic()
            assert load.rate(began_s, ended_s) == pytest.approx(1, abs=TOLERANCE)
        status = process.stop()

    assert status == 0, process.log_tail()
    assert load.highest() <= 1 + TOLERANCE


class Cluster(NamedTuple):
    """Three brokers with proxies. p2 reaches the quota and usage topics by a relay, p3 only the quota topic."""

    proxies: Sequence[Proxy]
    topics: Sequence[str]
    relays: Mapping[str, Relay]
    process: Process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(KAFKA_4, nodes=3, proxied=(PROXIED, *RELAYED)))
        relays = {
            name: stack.enter_context(
                Relay({one.listeners[name].advertised_port: one.listeners[name].port for one in kafka.brokers})
            )
            for name in RELAYED
        }
        direct = kafka.bootstrap_servers
        relayed = [",".join(broker.listeners[name].advertised_address for broker in kafka.brokers) for name in RELAYED]
        ways = ((direct, direct), (relayed[0], relayed[0]), (relayed[1], direct))
        places = [
            Place(broker.listeners[PROXIED].advertised_address, broker.listeners[PROXIED].address, *way)
            for broker, way in zip(kafka.brokers, ways, strict=True)
        ]
        usage = create_topic(kafka)
        topics = [create_topic(kafka, replicas=[broker.node_id]) for broker in kafka.brokers]
        directory = tmp_path_factory.mktemp("balance")
        process = stack.enter_context(Publisher(kafka, directory, usage=usage, lease="8s"))
        proxies = stack.enter_context(fleet(places, usage))
        yield Cluster(proxies, topics, dict(zip(NAMES[1:], relays.values(), strict=True)), process)


@pytest.mark.pipeline
@pytest.mark.timeout(600)
def test_limit_follows_a_load_that_moves_every_minute_within_20_seconds(cluster: Cluster) -> None:
    load = Load()
    rows = []
    for number in (0, 1, 2, 0):
        began_s = time.monotonic()
        with load.flowing(cluster.proxies[number].port(), cluster.topics[number]):
            time.sleep(60)
        rows.append((NAMES[number], load.windows(began_s, began_s + 60)))

    sys.stdout.write(f"\nto  within 5 %  after 20 s: mean, lowest, highest of {WINDOW_S:g} s, of the limit\n")
    for name, windows in rows:
        came_s = next((start for start, rate in windows if is_close(rate)), float("inf"))
        late = [rate for start, rate in windows if start >= SETTLED_S]
        sys.stdout.write(f"{name}  {came_s:8.1f} s  {sum(late) / len(late):14.3f} {min(late):.3f} {max(late):.3f}\n")
    # The first move includes the start, from even shares and with a cold Spark.
    for _, windows in rows[1:]:
        assert all(is_close(rate) for start, rate in windows if start >= SETTLED_S), cluster.process.log_tail()
    assert load.highest() <= 1 + TOLERANCE


@pytest.mark.pipeline
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES[1:])
def test_cut_off_proxy_adds_at_most_one_even_share(cluster: Cluster, name: str) -> None:
    """While p2 is cut off, it sends no usage and gets no shares. p3 still sends usage."""
    number, relay = NAMES.index(name), cluster.relays[name]
    load = Load()
    began_s = time.monotonic()
    with load.flowing(cluster.proxies[number].port(), cluster.topics[number]):
        time.sleep(30)
        relay.cut()
        cut_s = time.monotonic()
        with load.flowing(cluster.proxies[0].port(), cluster.topics[0]):
            time.sleep(40)
            # Exactly the cut-off proxy has lost its lease.
            leases = [one.metrics().total("kafka_quota_proxy_quotas_topic_lease_in_force") for one in cluster.proxies]
            relay.mend()
            mended_s = time.monotonic()
            time.sleep(60)
            ended_s = time.monotonic()

    windows = load.windows(mended_s, ended_s)
    before, cut = ([rate for _, rate in load.windows(*part)] for part in ((began_s, cut_s), (cut_s, mended_s)))
    after = [rate for _, rate in windows]
    rest_s = max((start + _STEP_S for start, rate in windows if not is_close(rate)), default=0.0)
    sys.stdout.write(
        f"{name}: before {max(before):.3f}, cut off {max(cut):.3f} at most and {sum(cut) / len(cut):.3f} on average, "
        f"after {max(after):.3f}; {rest_s:g} s after the mending within 5 % for good; of the limit, in windows of "
        f"{WINDOW_S:g} s\n"
    )
    assert leases == [float(one != name) for one in NAMES]
    # Windows after the repair still contain use of the cut-off time, because reduced shares arrive later.
    assert max(before) <= 1 + TOLERANCE, cluster.process.log_tail()
    assert max(*cut, *after) <= 1 + 1 / len(NAMES) + TOLERANCE, cluster.process.log_tail()
    assert max(cut) > 1 + TOLERANCE or number == 2  # p3 reports its use, so the others get the rest
    # The proxy reports again. The other proxy's share is kept for one more lease, and then each has half.
    assert rest_s <= SETTLED_AFTER_A_CUT_S, cluster.process.log_tail()
