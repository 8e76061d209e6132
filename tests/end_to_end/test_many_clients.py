"""The proxy throttles 250 clients above their quota, and does not slow down 250 others.

The others also send each request directly, and the difference of both latencies is what the proxy adds.
"""

import asyncio
import statistics
import struct
import time
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
import uvloop

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, produce_body, read_produce, record_batch, request
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, Answer, steady_rate
from tests.end_to_end.support.proxy import Proxy

_EACH = 250
_QUOTA = 4 * KIB
_GREEDY_RECORD = bytes(4 * KIB)  # a second of the quota
_POLITE_RECORD = bytes(1 * KIB)
_POLITE_EVERY_S = 2.0  # an eighth of the quota
_CONNECT_S = 3.0  # clients connect in turn
_WARM_UP_S = 6.0  # until the broker's Java code is compiled
_MOST_ADDED_S = 0.005
_LATENCY = "kafka_quota_proxy_added_latency_seconds"


@dataclass(slots=True, kw_only=True)
class _Results:
    """The added latencies of each second, the throttle times of polite clients, and the responses to greedy ones."""

    begin_s: float
    added_s: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    polite_waits_ms: list[int] = field(default_factory=list)
    greedy: dict[str, list[Answer]] = field(default_factory=dict)


class _Client:
    """A connection that sends the same Produce request again and again."""

    def __init__(self, client_id: str, topic: str, record: bytes) -> None:
        self._frame = request(
            PRODUCE, PRODUCE_VERSION, 1, client_id, produce_body(topic, record_batch([record]), acks=1)
        )
        self.charged_bytes = len(self._frame) - 4

    async def connect(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)

    async def produce(self) -> tuple[float, int]:
        """Send the request. Return the latency in seconds and the throttle time in milliseconds."""
        begin = time.perf_counter()
        self._writer.write(self._frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        answer = read_produce((await self._reader.readexactly(size))[4:])
        assert answer.error_code == 0
        return time.perf_counter() - begin, answer.throttle_time_ms

    def close(self) -> None:
        self._writer.close()


async def _polite(number: int, topic: str, ports: tuple[int, int], end_s: float, results: _Results) -> None:
    proxied, direct = (_Client(f"polite-{number}", topic, _POLITE_RECORD) for _ in ports)
    await asyncio.sleep(_CONNECT_S * number / _EACH)
    await proxied.connect(ports[0])
    await direct.connect(ports[1])
    first = True
    while time.monotonic() < end_s:
        # The write that is sent first has an advantage, so the order alternates.
        if first:
            proxied_answer, direct_answer = await asyncio.gather(proxied.produce(), direct.produce())
        else:
            direct_answer, proxied_answer = await asyncio.gather(direct.produce(), proxied.produce())
        first = not first
        results.polite_waits_ms.append(proxied_answer[1])
        warm_s = time.monotonic() - results.begin_s - _WARM_UP_S
        if warm_s > 0:
            results.added_s[int(warm_s)].append(proxied_answer[0] - direct_answer[0])
        await asyncio.sleep(_POLITE_EVERY_S)
    proxied.close()
    direct.close()


async def _greedy(number: int, topic: str, port: int, end_s: float, results: _Results) -> None:
    client_id = f"greedy-{number}"
    client = _Client(client_id, topic, _GREEDY_RECORD)
    answers = results.greedy[client_id] = []
    await asyncio.sleep(_CONNECT_S * number / _EACH)
    await client.connect(port)
    while time.monotonic() < end_s:
        _, wait_ms = await client.produce()
        answers.append(Answer(time.monotonic(), client.charged_bytes, wait_ms))
        await asyncio.sleep(wait_ms / 1_000)
    client.close()


async def _all(topic: str, proxied_port: int, direct_port: int, seconds: float) -> _Results:
    results = _Results(begin_s=time.monotonic())
    end_s = results.begin_s + seconds
    async with asyncio.TaskGroup() as clients:
        for number in range(_EACH):
            clients.create_task(_greedy(number, topic, proxied_port, end_s, results))
            clients.create_task(_polite(number, topic, (proxied_port, direct_port), end_s, results))
    return results


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def _share_within(proxy: Proxy, bound_s: float) -> float:
    """Return the share of Produce requests that spent at most this time in the proxy, by its own histogram."""
    metrics = proxy.metrics()
    bounds = [bound for bound in metrics.label_values(f"{_LATENCY}_bucket", "le") if float(bound) <= bound_s]
    inside = metrics.total(f"{_LATENCY}_bucket", api="Produce", le=max(bounds, key=float))
    return inside / metrics.total(f"{_LATENCY}_count", api="Produce")


@pytest.mark.long
@pytest.mark.parametrize("seconds", [96])
def test_throttled_half_of_500_clients_does_not_slow_the_other_half(kafka_4: Kafka, seconds: int) -> None:
    topic = create_topic(kafka_4)
    rules = [{"client-id": "<default>", "producer_byte_rate": _QUOTA}]

    with Proxy({"quotas": rules, "shaping": "paced"}, kafka_4) as proxy:
        results = uvloop.run(_all(topic, proxy.port(), kafka_4.listener(DIRECT).port, seconds))
        quick = _share_within(proxy, _MOST_ADDED_S)

    added_s = [results.added_s[second] for second in range(int(seconds - _WARM_UP_S))]
    assert sum(len(of_a_second) for of_a_second in added_s) > 0.8 * _EACH / _POLITE_EVERY_S * len(added_s)
    assert set(results.polite_waits_ms) == {0}
    p99_s = [_percentile(of_a_second, 0.99) for of_a_second in added_s if of_a_second]
    assert statistics.quantiles(p99_s, n=4)[0] < _MOST_ADDED_S, sorted(p99_s)
    assert quick > 0.99

    assert len(results.greedy) == _EACH
    rates = {client_id: steady_rate(answers, after_s=5) / _QUOTA for client_id, answers in results.greedy.items()}
    assert {client_id: rate for client_id, rate in rates.items() if not 0.98 <= rate <= 1.02} == {}
