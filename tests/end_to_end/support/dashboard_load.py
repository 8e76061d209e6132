"""A cluster behind two proxies under a load that all dashboards show, and a Prometheus that scrapes both proxies.

Three brokers reach each other through one of the proxies. Meanwhile a partition moves from one broker to another.
"""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.closed_loop import Crowd, Load, Polls, Writes
from tests.end_to_end.support.endless import consume_endlessly, produce_endlessly
from tests.end_to_end.support.kafka import PROXIED, Kafka
from tests.end_to_end.support.load import KIB, MIB
from tests.end_to_end.support.processes import free_port, wait_until
from tests.end_to_end.support.prometheus import Prometheus
from tests.end_to_end.support.proxy import Proxy, replication_listener
from tests.end_to_end.support.rebalance import Reassignment, knows_its_brokers, load

_OTHER: Final = "OTHER"  # the listener of the second proxy
_REPLICATION_RATE: Final = 500_000
_MOVED_BYTES: Final = 50_000
_CROWDS: Final[dict[Writes | Polls, tuple[Crowd, ...]]] = {
    Writes(): (*(Crowd(f"polite-{number}") for number in range(3)), Crowd("greedy", 40), Crowd("checks", 2)),
    Polls(300): (Crowd("poller"),),
}
_EVERY_S: Final = 0.5
_QUOTAS: Final = (
    {
        "user": "<default>",
        "client-id": "etl",
        "producer_byte_rate": 512 * KIB,
        "consumer_byte_rate": 512 * KIB,
        "shaping": "paced",
    },
    {"user": "<default>", "client-id": "reports", "consumer_byte_rate": 512 * KIB},
    {"user": "<default>", "client-id": "web", "producer_byte_rate": MIB, "consumer_byte_rate": MIB},
    {"user": "<default>", "client-id": "trial", "producer_byte_rate": 64 * KIB, "enforcement": "observe"},
    {"user": "<default>", "client-id": "checks", "request_percentage": 1},
    {"user": "<default>", "client-id": "deployer", "controller_mutation_rate": 1},
    {"user": "<default>", "client-id": "<default>", "producer_byte_rate": 10 * MIB, "consumer_byte_rate": 10 * MIB},
)
_REPLICATION: Final = {"from_cluster": True, "poll_interval": "500ms"}
_QUEUE: Final = {"max_in_flight": 1, "callqueue.capacity": 64, "backoff.enable": True}


@contextlib.contextmanager
def under_load(seconds: float, *, away: bool) -> Iterator[Prometheus]:
    """Run everything, and yield Prometheus when the load has begun.

    The load ends with the ``with`` block, or earlier after ``seconds``. The partition takes longer to move. ``away``
    adds a proxy that does not answer.
    """
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(KAFKA_4, nodes=3, inter_broker_proxied=True, proxied=(PROXIED, _OTHER)))
        proxies = [stack.enter_context(Proxy(settings)) for settings in _settings(kafka)]
        wait_until(lambda: knows_its_brokers(kafka), timeout_s=60, what="the brokers know each other")
        targets = [proxy.admin_address for proxy in proxies] + [f"127.0.0.1:{free_port()}"] * away
        moving = load(
            kafka, on=[1], size_bytes=int(seconds * _REPLICATION_RATE), record_bytes=_MOVED_BYTES, partitions=1
        )
        to_read = load(kafka, on=[1], size_bytes=int(seconds * 512 * KIB), record_bytes=64 * KIB)
        prometheus = stack.enter_context(Prometheus(targets))
        end = Event()
        running = stack.enter_context(_threads(end))
        first, second = (kafka.listener(name).advertised_address for name in (PROXIED, _OTHER))
        for address, client_id, topic, bytes_a_second in (
            (first, "etl", create_topic(kafka, replicas=[1]), 0),
            (first, "web", create_topic(kafka, replicas=[1]), 200 * KIB),
            (second, "trial", create_topic(kafka, replicas=[1]), 128 * KIB),
            (second, "etl", create_topic(kafka, replicas=[1]), 0),
        ):
            running(produce_endlessly, address, topic, client_id, end, bytes_a_second=bytes_a_second)
        # Records as large as those that move: the lag of a replica is in records.
        running(
            produce_endlessly, first, moving.topic, "orders", end, bytes_a_second=100 * KIB, record_bytes=_MOVED_BYTES
        )
        for client_id in ("reports", "etl"):
            running(consume_endlessly, first, to_read.topic, client_id, end)
        running(_alter_topics, first, end)
        running(_send_no_kafka, proxies[0].port(PROXIED), end)
        for kind, crowds in _CROWDS.items():
            topic = create_topic(kafka, replicas=[1])
            stack.enter_context(Load(proxies[0].port(PROXIED), topic, *crowds, seconds=seconds, kind=kind))
        Reassignment(load=moving, to=[3], throttle=_REPLICATION_RATE).execute()
        yield prometheus


def _settings(kafka: Kafka) -> Iterator[dict[str, object]]:
    def listeners(name: str) -> list[dict[str, object]]:
        at = [(broker.node_id, broker.listeners[name]) for broker in kafka.brokers]
        return [
            {
                "name": name if node_id == 1 else f"{name}-{node_id}",
                "bind": endpoint.advertised_address,
                "upstream": endpoint.address,
            }
            for node_id, endpoint in at
        ]

    between = [replication_listener(broker) for broker in kafka.brokers]
    yield {
        "listeners": [*listeners(PROXIED), *between],
        "quotas": list(_QUOTAS),
        "fair_call_queue": _QUEUE,
        "replication": _REPLICATION,
    }
    yield {
        "listeners": listeners(_OTHER),
        "quotas": list(_QUOTAS),
        "store": {"directory": "quotas.d"},
        "principals": {"admins": ["admin"]},
    }


@contextlib.contextmanager
def _threads(end: Event) -> Iterator[Callable[..., None]]:
    """Yield a function that starts a client in a thread. At the end, an error of a client is raised."""
    started: list[Future[None]] = []
    with ThreadPoolExecutor(16) as pool:
        try:
            yield lambda *arguments, **options: started.append(pool.submit(*arguments, **options))
        finally:
            end.set()
    for one in started:
        one.result()


def _alter_topics(address: str, end: Event) -> None:
    """Create a topic with three partitions again and again."""
    admin = AdminClient({"bootstrap.servers": address, "client.id": "deployer", **QUIET})
    while not end.wait(2):
        name = f"made-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(name, 3, replication_factor=1)])[name].result(timeout=60)


def _send_no_kafka(port: int, end: Event) -> None:
    """Open connections that speak HTTP."""
    while not end.wait(_EVERY_S):
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            connection.recv(1)
