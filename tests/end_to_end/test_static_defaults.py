"""``quota.producer.default`` and ``quota.consumer.default`` work as in Kafka 2.8, the last release that has them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import pytest

from tests.end_to_end.support import tools
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, MIB, Answer, batch_of, fetch_flood, produce_flood
from tests.end_to_end.support.old_kafka import OldKafka
from tests.end_to_end.support.proxy import Proxy

_QUOTA: Final = 256 * KIB
_SIZE_BYTES: Final = 32 * KIB
_SECONDS: Final = 10
_DEFAULTS: Final[dict[str, str | int]] = {
    "quota.producer.default": _QUOTA,
    "quota.consumer.default": _QUOTA,
    # Cycles of burst and silence are short, so that a few seconds have many.
    "quota.window.num": 3,
}
# Its own quota overrides the default.
_NAMED: Final = "named"
_OF_ITS_OWN: Final = 1_000 * MIB


class Side(NamedTuple):
    port: int
    written: str
    read: str


class Outcome(NamedTuple):
    """The responses at one side, by client-id."""

    answers: dict[str, list[Answer]]

    def bytes_of(self, client_id: str) -> int:
        return sum(answer.size_bytes for answer in self.answers[client_id])

    def throttled_s(self, client_id: str) -> float:
        return sum(answer.throttle_time_ms for answer in self.answers[client_id]) / 1_000


def _side(kafka: Kafka, port: int) -> Side:
    side = Side(port, create_topic(kafka), create_topic(kafka))
    with raw_client(kafka.listener(DIRECT).port) as client:
        assert client.produce(side.read, batch_of(_SIZE_BYTES)).error_code == 0
    # This compiles some of the broker's Java code.
    produce_flood(port, side.written, client_id="warms up", request_bytes=_SIZE_BYTES, seconds=1)
    return side


def _floods(side: Side) -> dict[str, Callable[[], list[Answer]]]:
    left = iter(range(4 * _QUOTA // _SIZE_BYTES))

    def produce(client_id: str, is_over: Callable[[], bool] = lambda: False) -> list[Answer]:
        return produce_flood(
            side.port,
            side.written,
            client_id=client_id,
            request_bytes=_SIZE_BYTES,
            seconds=_SECONDS,
            is_over=is_over,
        )

    return {
        "one": lambda: produce("one"),
        "other": lambda: produce("other"),
        "reads": lambda: fetch_flood(
            side.port, side.read, client_id="reads", max_bytes=2 * _SIZE_BYTES, seconds=_SECONDS
        ),
        _NAMED: lambda: produce(_NAMED, lambda: next(left, None) is None),
    }


@pytest.fixture(scope="module")
def outcomes(kafka_4: Kafka) -> tuple[Outcome, Outcome]:
    """The results at the broker and at the proxy."""
    rules = [{"client-id": _NAMED, "producer_byte_rate": _OF_ITS_OWN}]
    with OldKafka(config=_DEFAULTS) as old, Proxy({"kafka": _DEFAULTS, "quotas": rules}, kafka_4) as proxy:
        tools.set_broker_quota(old, _NAMED, {"producer_byte_rate": _OF_ITS_OWN})
        sides = _side(old, old.listener(DIRECT).port), _side(kafka_4, proxy.port())
        floods = [_floods(side) for side in sides]
        with ThreadPoolExecutor(sum(map(len, floods))) as pool:
            running = [{name: pool.submit(flood) for name, flood in of_a_side.items()} for of_a_side in floods]
            kafkas, ours = ({name: one.result() for name, one in of_a_side.items()} for of_a_side in running)
    return Outcome(kafkas), Outcome(ours)


@pytest.mark.parametrize("client_id", ["one", "other", "reads"])
def test_static_default_holds_for_each_client_as_in_kafka_2_8(
    outcomes: tuple[Outcome, Outcome], client_id: str
) -> None:
    kafkas, ours = outcomes
    share = ours.bytes_of(client_id) / _SECONDS / _QUOTA

    assert 0.8 < share < 1.1
    # Brokers before 3.8 measure over fewer windows. With these settings their bursts are up to a fifth larger.
    assert ours.bytes_of(client_id) / kafkas.bytes_of(client_id) == pytest.approx(0.9, abs=0.2)
    assert ours.throttled_s(client_id) / kafkas.throttled_s(client_id) == pytest.approx(1, abs=0.3)


def test_rule_of_a_client_overrides_the_static_default(outcomes: tuple[Outcome, Outcome]) -> None:
    for outcome in outcomes:
        assert outcome.bytes_of(_NAMED) > 3 * _QUOTA  # more than the default lets pass at once
        assert outcome.throttled_s(_NAMED) == 0
