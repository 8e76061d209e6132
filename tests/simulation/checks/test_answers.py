"""Tests that a frame that is changed, lost in order or answered twice is found, and documented edits are not."""

from struct import pack

import pytest

from tests.simulation.checks.answers import Answers
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import StandIn
from tests.simulation.violation import Violation
from tests.simulation.wire import api_versions, fetch, metadata, produce
from tests.simulation.wire.common import NodeEndpoint

FETCH_BODY = pack(">iiii", -1, 500, 1_000, 50_000) + b"\0" + pack(">ii", 0, 0) + bytes(12)


def a_world(**settings: bool) -> StandIn:
    world = StandIn(Settings(**settings))  # type: ignore[arg-type] # flags
    world.watch(Answers)
    return world


def fetch_frame(world: StandIn, max_bytes: int, min_bytes: int = 1_000, epoch: int = 0) -> None:
    exchange = world.send(1, api_version=11, body=FETCH_BODY)
    body = pack(">iiii", -1, 500, min_bytes, max_bytes) + b"\0" + pack(">ii", 0, epoch) + bytes(12)
    world.forward(exchange, exchange.request[: -len(body)] + body)


def test_unchanged_frames_in_order_pass() -> None:
    world = a_world()
    first, second = world.send(), world.send()
    world.forward(first)
    world.forward(second)
    answers = [world.answer(first), world.answer(second)]
    world.give(first, answers[0])
    world.give(second, answers[1])


def test_a_changed_request_is_found() -> None:
    world = a_world()
    exchange = world.send(size=200)
    with pytest.raises(Violation, match="from byte 199 on 00 became 01"):
        world.forward(exchange, exchange.request[:-1] + b"\1")


@pytest.mark.parametrize("edit", [{"max_bytes": 500, "min_bytes": 500}, {"max_bytes": 50_000, "epoch": -1}])
def test_a_lower_fetch_without_a_session_passes(edit: dict[str, int]) -> None:
    fetch_frame(a_world(), **edit)


@pytest.mark.parametrize("edit", [{"max_bytes": 60_000}, {"max_bytes": 500}, {"max_bytes": 50_000, "epoch": 1}])
def test_any_other_fetch_is_found(edit: dict[str, int]) -> None:
    with pytest.raises(Violation, match="is changed"):
        fetch_frame(a_world(), **edit)


def test_a_request_that_overtakes_is_found() -> None:
    world = a_world()
    first, second = world.send(), world.send()
    world.forward(second)
    with pytest.raises(Violation, match="after a later request"):
        world.forward(first)


def test_a_request_at_another_broker_is_found() -> None:
    world = a_world(hides_addresses=False)
    with pytest.raises(Violation, match="is at broker 2"):
        world.forward(world.send(), node_id=2)


def test_a_second_answer_is_found() -> None:
    world = a_world()
    exchange = world.exchange()
    with pytest.raises(Violation, match="nothing is awaited"):
        world.ledger.passed(exchange.correlation_id, 60)


def test_answers_out_of_order_are_found() -> None:
    world = a_world()
    first, second = world.send(), world.send()
    world.forward(first)
    world.forward(second)
    world.answer(first)
    with pytest.raises(Violation, match="comes first"):
        world.give(second, world.answer(second))


@pytest.mark.parametrize("version", [3, 7, 8, 9, 12, 13])
def test_the_throttle_time_of_a_produce_may_be_edited_and_nothing_else(version: int) -> None:
    world = a_world()
    exchange = world.send(api_version=version)
    world.forward(exchange)
    topic = bytes(15) + b"\1" if version >= 13 else "t"
    answers = [produce.TopicAnswer(topic, [produce.PartitionAnswer(0, 0, 42)])]
    frame = produce.response(exchange.correlation_id, version, answers)
    told = produce.response(exchange.correlation_id, version, answers, throttle_ms=1_234)
    world.answer(exchange, frame=frame)
    world.give(exchange, told)

    exchange = world.send(api_version=version)
    world.forward(exchange)
    wrong = [produce.TopicAnswer(topic, [produce.PartitionAnswer(0, 0, 43)])]
    world.answer(exchange, frame=produce.response(exchange.correlation_id, version, answers))
    with pytest.raises(Violation, match="is changed"):
        world.give(exchange, produce.response(exchange.correlation_id, version, wrong))


def test_the_addresses_of_brokers_are_replaced() -> None:
    world = a_world()

    def ask(host: str) -> None:
        exchange = world.send(3, api_version=9)
        world.forward(exchange)
        own = metadata.response(exchange.correlation_id, 9, [NodeEndpoint(1, "10.0.1.1", 9_092)], [])
        seen = metadata.response(exchange.correlation_id, 9, [NodeEndpoint(1, host, 19_092)], [])
        world.answer(exchange, frame=own)
        world.give(exchange, seen)

    ask("10.0.0.1")
    with pytest.raises(Violation, match="address of a broker"):
        ask("10.0.1.1")


def test_the_address_of_a_leader_in_a_response_that_is_not_changed_is_found() -> None:
    world = a_world()
    exchange = world.send(api_version=10)
    world.forward(exchange)
    topic = produce.TopicAnswer("orders", [produce.PartitionAnswer(0, 6)])
    leader = NodeEndpoint(1, "10.0.4.1", 9_092)
    frame = world.answer(exchange, frame=produce.response(exchange.correlation_id, 10, [topic], endpoints=[leader]))
    with pytest.raises(Violation, match="address of a broker"):
        world.give(exchange, frame)


def test_an_empty_fetch_needs_a_quota() -> None:
    world = a_world()
    (check,) = world.ledger.checks
    check.rules_changed([{"client-id": "etl", "consumer_byte_rate": 1_000}])

    def empty(throttle_ms: int = 500) -> None:
        exchange = world.send(1, api_version=11, body=FETCH_BODY)
        frame = fetch.response(exchange.correlation_id, 11, [], throttle_ms=throttle_ms)
        world.give(exchange, frame, throttle_ms=throttle_ms)

    empty()
    with pytest.raises(Violation, match="without records or a throttle time"):
        empty(throttle_ms=0)
    check.rules_changed([])
    empty()
    world.wait(2_000)
    with pytest.raises(Violation, match="nothing explains it"):
        empty()


def test_an_answer_without_the_broker_is_found() -> None:
    world = a_world(has_queue=True)
    exchange = world.send()
    world.forward(exchange)
    with pytest.raises(Violation, match="without its broker"):
        world.give(exchange, pack(">ii", 4, exchange.correlation_id))


def test_a_version_that_the_proxy_cannot_read_is_found() -> None:
    world = a_world()

    def offer(newest: int) -> None:
        exchange = world.send(18, api_version=0)
        world.forward(exchange)
        frame = api_versions.response(exchange.correlation_id, 0, {0: (3, newest), 3: (0, 99)})
        world.give(exchange, world.answer(exchange, frame=frame))

    offer(13)
    with pytest.raises(Violation, match="offers versions that are too new"):
        offer(14)
