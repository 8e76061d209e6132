"""An observing proxy counts the throttle time of an enforcing one under the same load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.crowds import CONSUMERS, KIB, PRODUCERS, Crowd, flood, topic_to_read, topic_to_write
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy

pytestmark = pytest.mark.long

_QUOTA: Final = 256 * KIB
_KINDS: Final = {CONSUMERS: "fetch", PRODUCERS: "produce"}
_ENFORCEMENTS: Final = {"respond": "throttle", "observe": "observed_throttle"}
# Observed consumers read at full speed, so this time is long enough.
_SECONDS: Final = 25.0


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """A broker with two proxied listeners."""
    with Kafka(KAFKA_4, proxied=tuple(_ENFORCEMENTS)) as kafka:
        yield kafka


@pytest.mark.parametrize(("role", "shaping", "connections"), [(PRODUCERS, "sampled", 1), (CONSUMERS, "paced", 10)])
def test_observed_throttle_time_equals_that_of_an_enforced_run(
    kafka: Kafka, role: str, shaping: str, connections: int
) -> None:
    topic = topic_to_read(kafka, size_bytes=4 << 20) if role == CONSUMERS else topic_to_write(kafka)
    rule = {"client-id": "ours", "producer_byte_rate": _QUOTA, "consumer_byte_rate": _QUOTA}
    with ExitStack() as stack:
        proxies = {}
        for enforcement in _ENFORCEMENTS:
            endpoint = kafka.listener(enforcement)
            listener = {"name": enforcement, "bind": endpoint.advertised_address, "upstream": endpoint.address}
            settings = {"listeners": [listener], "quotas": [rule], "shaping": shaping, "enforcement": enforcement}
            proxies[enforcement] = stack.enter_context(Proxy(settings))
        crowds = {
            name: Crowd(role=role, port=proxy.port(name), topic=topic, client_id="ours", connections=connections)
            for name, proxy in proxies.items()
        }
        flood(crowds, seconds=_SECONDS)
        seconds = {
            name: proxy.metrics().total(
                f"kafka_quota_proxy_{_ENFORCEMENTS[name]}_seconds_total", kind=_KINDS[role], client_id="ours"
            )
            for name, proxy in proxies.items()
        }

    print(f"{connections} {role}, {shaping}: {seconds}")  # noqa: T201
    assert seconds["respond"] > 0.5 * _SECONDS
    assert seconds["observe"] == pytest.approx(seconds["respond"], rel=0.1)
