"""Proof 5: 500 clients at once, half of them over quota: that half is held to it, the other half does not feel it.

What is measured: every polite client sends each request once through the proxy and once straight to the broker, in
turn, over two connections. Both see the same machine and the same broker at the same time, so the difference between
the 99th percentiles of the two is what the proxy adds. The proxy's own histogram is looked at as well. The load (some
750 requests a second through the proxy) leaves both cores of a small machine half idle: at full load each queue
would be measured, not the quota.
"""

import asyncio
import struct
import time
from dataclasses import dataclass, field

import pytest
import uvloop

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, produce_body, read_produce, record_batch, request
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, Answer, flow_of, rate_over_whole_cycles, steady_rate
from tests.end_to_end.support.proxy import Proxy

_EACH = 250
_QUOTA = 8 * KIB
_GREEDY_RECORD = bytes(4 * KIB)  # half a second of the quota
_POLITE_RECORD = bytes(1 * KIB)
_POLITE_EVERY_S = 1.0  # an eighth of the quota
_MOST_ADDED_S = 0.005
_LATENCY = "kafka_quota_proxy_added_latency_seconds"
_WINDOWS = 3  # short cycles, of which many fit into a test


@dataclass(slots=True)
class _Seen:
    """What the clients saw: latencies in seconds, the waits that polite ones were told, the flow of each greedy one."""

    proxied_s: list[float] = field(default_factory=list)
    direct_s: list[float] = field(default_factory=list)
    polite_waits_ms: list[int] = field(default_factory=list)
    greedy: dict[str, list[Answer]] = field(default_factory=dict)


class _Client:
    """A connection that has one Produce request, which it sends over and over."""

    def __init__(self, client_id: str, topic: str, record: bytes) -> None:
        self._frame = request(
            PRODUCE, PRODUCE_VERSION, 1, client_id, produce_body(topic, record_batch([record]), acks=1)
        )
        self.charged_bytes = len(self._frame) - 4

    async def connect(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)

    async def produce(self) -> tuple[float, int]:
        """Send it; return the latency in seconds and the wait that the answer asks for in milliseconds."""
        begin = time.perf_counter()
        self._writer.write(self._frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = read_produce((await self._reader.readexactly(size))[4:])
        assert answer.error_code == 0
        return time.perf_counter() - begin, answer.throttle_time_ms

    def close(self) -> None:
        self._writer.close()


async def _polite(number: int, topic: str, ports: tuple[int, int], end_s: float, seen: _Seen) -> None:
    proxied, direct = (_Client(f"polite-{number}", topic, _POLITE_RECORD) for _ in ports)
    await proxied.connect(ports[0])
    await direct.connect(ports[1])
    # Connecting and the first request of a connection (the proxy dials the broker then) are not what is measured.
    await proxied.produce()
    await direct.produce()
    await asyncio.sleep(_POLITE_EVERY_S * number / _EACH)
    while time.monotonic() < end_s:
        latency_s, wait_ms = await proxied.produce()
        seen.proxied_s.append(latency_s)
        seen.polite_waits_ms.append(wait_ms)
        await asyncio.sleep(_POLITE_EVERY_S / 2)
        seen.direct_s.append((await direct.produce())[0])
        await asyncio.sleep(_POLITE_EVERY_S / 2)
    proxied.close()
    direct.close()


async def _greedy(number: int, topic: str, port: int, end_s: float, seen: _Seen) -> None:
    client_id = f"greedy-{number}"
    client = _Client(client_id, topic, _GREEDY_RECORD)
    answers = seen.greedy[client_id] = []
    await client.connect(port)
    await asyncio.sleep(number / _EACH)
    while time.monotonic() < end_s:
        _, wait_ms = await client.produce()
        answers.append(Answer(time.monotonic(), client.charged_bytes, wait_ms))
        await asyncio.sleep(wait_ms / 1_000)
    client.close()


async def _all(topic: str, proxied_port: int, direct_port: int, seconds: float) -> _Seen:
    seen, end_s = _Seen(), time.monotonic() + seconds
    async with asyncio.TaskGroup() as clients:
        for number in range(_EACH):
            clients.create_task(_greedy(number, topic, proxied_port, end_s, seen))
            clients.create_task(_polite(number, topic, (proxied_port, direct_port), end_s, seen))
    return seen


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def _share_within(proxy: Proxy, bound_s: float) -> float:
    """The share of Produce requests that, by the proxy's own clock, were inside it for no longer than this."""
    metrics = proxy.metrics()
    bounds = [bound for bound in metrics.label_values(f"{_LATENCY}_bucket", "le") if float(bound) <= bound_s]
    inside = metrics.total(f"{_LATENCY}_bucket", api="Produce", le=max(bounds, key=float))
    return inside / metrics.total(f"{_LATENCY}_count", api="Produce")


@pytest.mark.parametrize(
    ("shape", "seconds"),
    [
        ("paced", 20),
        ("sampled", 20),
        *(pytest.param(shape, 90, marks=pytest.mark.long) for shape in ("paced", "sampled")),
    ],
)
def test_half_of_500_clients_is_held_to_its_quota_and_the_other_half_is_not_slowed(
    kafka_4: Kafka, shape: str, seconds: int
) -> None:
    topic = create_topic(kafka_4)
    rules = [{"client-id": "<default>", "producer_byte_rate": _QUOTA}]
    settings = {"quotas": rules, "shaping": shape, "kafka": {"quota.window.num": _WINDOWS}}

    with Proxy(settings, kafka_4) as proxy:
        seen = uvloop.run(_all(topic, proxy.port(), kafka_4.listener(DIRECT).port, seconds))
        quick = _share_within(proxy, _MOST_ADDED_S)

    assert len(seen.proxied_s) > 0.6 * _EACH * seconds / _POLITE_EVERY_S
    assert max(seen.polite_waits_ms) == 0
    assert _percentile(seen.proxied_s, 0.99) - _percentile(seen.direct_s, 0.99) < _MOST_ADDED_S
    assert quick > 0.99

    assert len(seen.greedy) == _EACH
    rates = {client_id: _rate(shape, answers) / _QUOTA for client_id, answers in seen.greedy.items()}
    assert {client_id: rate for client_id, rate in rates.items() if not 0.98 <= rate <= 1.02} == {}


def _rate(shape: str, answers: list[Answer]) -> float:
    if shape == "paced":
        return steady_rate(answers, after_s=1)
    return rate_over_whole_cycles(flow_of(answers), quota=_QUOTA)
