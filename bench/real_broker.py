"""Rows with a real Apache Kafka and its own performance tools."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.figures import DIRECT as DIRECT_PEER
from bench.figures import KROXYLICIOUS, OURS, OURS_QUEUEING, OURS_WITHOUT_RELAY, Sample
from bench.measure import cpu_seconds
from bench.peers import Peer, Route, running, with_and_without_queue
from bench.rows import Row
from tests.end_to_end.support.artifacts import KAFKA_3_9, java
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import free_port, run
from tests.end_to_end.support.tools import consumer_performance, producer_performance

RECORD_SIZE_BYTES = 1_000
# A run takes a few seconds, mostly for Java. The CPU time of a proxy does not include Java's.
PRODUCED_RECORDS = 250_000
CONSUMED_RECORDS = 1_200_000
# A topic must fit the page cache, but five repetitions of four peers write some 10 GB.
_SHORT_RETENTION = {"retention.bytes": "200000000", "segment.bytes": "100000000"}
_BROKER = {"log.retention.check.interval.ms": 1_000, "log.segment.delete.delay.ms": 1_000}


class BenchKafka(Kafka):
    """A broker with tools that run like a long-lived client: with both compilers and the default heap."""

    def run_java(
        self, main_class: str, *arguments: str | Path, timeout_s: float = 120, classpath: str | None = None
    ) -> str:
        """Run a Java class to its end, and return its standard output."""
        command = [java(), "-Xmx1g", "-cp", classpath or self.classpath, main_class, *arguments]
        return run(command, timeout_s=timeout_s)


@contextmanager
def measuring(names: Sequence[str]) -> Iterator[tuple[list[Peer], Callable[[Row, Peer], Sample]]]:
    """Start a broker, and these peers in front of it. Each has a listener that advertises the peer."""
    names = [name for name in names if name != OURS_WITHOUT_RELAY]
    # Kroxylicious rewrites the advertised addresses, so it uses the direct listener.
    proxied = [name.upper() for name in names if name not in (DIRECT_PEER, KROXYLICIOUS)]
    with BenchKafka(KAFKA_3_9, proxied=proxied, config=_BROKER) as kafka:

        def route(name: str) -> Route:
            direct = kafka.listener(DIRECT)
            if name == DIRECT_PEER:
                return Route(port=direct.port, upstream_port=direct.port)
            if name == KROXYLICIOUS:
                return Route(port=free_port(), upstream_port=direct.port)
            endpoint = kafka.listener(name.upper())
            return Route(port=endpoint.advertised_port, upstream_port=endpoint.port)

        load = Load(kafka)
        with running(names, route) as peers:
            yield peers, load.measure


@contextmanager
def measuring_queue(names: Sequence[str]) -> Iterator[tuple[list[Peer], Callable[[Row, Peer], Sample]]]:
    """Start a broker and our proxy, with and without a queue."""
    listeners = {OURS: "OURS", OURS_QUEUEING: "QUEUEING"}
    with ExitStack() as stack:
        kafka = stack.enter_context(BenchKafka(KAFKA_3_9, proxied=[*listeners.values()], config=_BROKER))
        endpoints = {name: kafka.listener(listener) for name, listener in listeners.items()}
        routes = {name: Route(port=one.advertised_port, upstream_port=one.port) for name, one in endpoints.items()}
        yield stack.enter_context(with_and_without_queue(routes)) if OURS in names else [], Load(kafka).measure


class Load:
    """Kafka's performance tools. Topics are created when they are first needed."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._topics: dict[str, str] = {}

    def measure(self, row: Row, peer: Peer) -> Sample:
        """Run a tool once, through a peer."""
        topic = self._topic(row)
        before = cpu_seconds(peer.pid) if peer.pid else 0.0
        bytes_, seconds = (self._produce if row.api == "produce" else self._consume)(row, topic, peer)
        after = cpu_seconds(peer.pid) if peer.pid else 0.0
        return {"seconds": seconds, "bytes": bytes_, "cpu_s": after - before}

    def _topic(self, row: Row) -> str:
        if row.key not in self._topics:
            if row.api == "produce":
                self._topics[row.key] = create_topic(self._kafka, config=_SHORT_RETENTION)
            else:
                self._topics[row.key] = create_topic(self._kafka, partitions=row.partitions)
                self._fill(self._topics[row.key])
        return self._topics[row.key]

    def _fill(self, topic: str) -> None:
        producer_performance(
            self._kafka,
            bootstrap_servers=self._kafka.bootstrap_servers,
            topic=topic,
            records=CONSUMED_RECORDS,
            record_size_bytes=RECORD_SIZE_BYTES,
            properties={"batch.size": 65_536, "linger.ms": 5},
        )

    def _produce(self, row: Row, topic: str, peer: Peer) -> tuple[float, float]:
        records = PRODUCED_RECORDS if row.size_bytes < 100_000 else 3 * PRODUCED_RECORDS
        done = producer_performance(
            self._kafka,
            bootstrap_servers=f"127.0.0.1:{peer.port}",
            topic=topic,
            records=records,
            record_size_bytes=RECORD_SIZE_BYTES,
            throughput=row.records_per_s or -1,
            properties={"batch.size": row.size_bytes, "linger.ms": 10, "acks": 1, "buffer.memory": 67_108_864},
        )
        return records * RECORD_SIZE_BYTES, records / done.records_per_second

    def _consume(self, row: Row, topic: str, peer: Peer) -> tuple[float, float]:
        done = consumer_performance(
            self._kafka, bootstrap_servers=f"127.0.0.1:{peer.port}", topic=topic, records=CONSUMED_RECORDS
        )
        return done.size_bytes, done.fetch_s
