"""Tests that quotas of bytes, requests, topic changes and connections are judged by what they have given."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checks.check import Check
from tests.simulation.checks.connection_limits import ConnectionLimits
from tests.simulation.checks.entities import PRODUCE, Rules
from tests.simulation.checks.kafka_rate import KafkaRate
from tests.simulation.checks.quota_bounds import QuotaBounds
from tests.simulation.checks.request_rates import RequestRates
from tests.simulation.checks.settings import Settings
from tests.simulation.checks.support import CLIENT, ETL, PORT, StandIn, found
from tests.simulation.checks.topic_changes import TopicChanges
from tests.simulation.checks.topic_room import TopicRoom
from tests.simulation.ledger import Exchange
from tests.simulation.wire import administration, transfer

RATE = 10_000.0
EXISTS, INVALID_PARTITIONS, REFUSED = 36, 37, 89


def asking(most_bytes: int) -> dict[str, Any]:
    """Return what makes a request a Fetch for so many bytes."""
    return {"api_key": 1, "api_version": 11, "body": pack(">iiii", -1, 500, 1, most_bytes) + bytes(19)}


def a_world(kind: type[Check], shaping: str = "paced") -> StandIn:
    """Return a world in which 200 connections have had their broker dialled."""
    rates: dict[type[Check], dict[str, float]] = {
        QuotaBounds: {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}, RequestRates: {"request_rate": 10},
    }  # fmt: skip
    rule = {"client-id": "etl", **rates.get(kind, {"controller_mutation_rate": 2})}
    world = StandIn(kind, [rule], shaping=shaping)
    for connection in range(200):
        world.exchange(18, connection=connection)
    world.wait(5_000)
    return world


def change_rules(world: StandIn, **rates: float) -> None:
    world.rules_changed([{"client-id": "etl", **rates}])


def produce(world: StandIn, connection: int = 1) -> None:
    world.exchange(size=1_004, connection=connection)


def fetch(world: StandIn, connection: int = 1) -> None:
    world.exchange(response=1_005, connection=connection, **asking(1_000))


def ask(world: StandIn, connection: int = 1) -> None:
    world.exchange(3, connection=connection)


def create(world: StandIn, connection: int = 1) -> None:
    change = about_topic(world, f"topic-{len(world.cluster.topics)}", 1, connection)
    world.forward(change)
    world.cluster.topics[change.detail.topic] = SimpleNamespace(partitions=[0])
    tell(world, change)


def about_topic(world: StandIn, topic: str, partitions: int, connection: int = 1, **more: Any) -> Exchange:
    detail = SimpleNamespace(topic=topic, partitions=partitions)
    return world.send(more.pop("api_key", 19), connection=connection, detail=detail, **more)


def tell(world: StandIn, change: Exchange, error: int = 0, *, throttle_ms: int = 0, by_broker: bool = True) -> None:
    """Answer a change of a topic, perhaps with another throttle time than the broker's."""
    api, row = (administration.create_topics, administration.CreatedTopic) if change.api_key == 19 else (
        administration.create_partitions, administration.GrowthResult,
    )  # fmt: skip
    rows: Any = [row(change.detail.topic, error)]
    if by_broker:
        world.answer(change, frame=api.response(change.correlation_id, change.api_version, rows))
    frame = api.response(change.correlation_id, change.api_version, rows, throttle_ms=throttle_ms)
    world.give(change, frame, throttle_ms=throttle_ms)


ROLES = pytest.mark.parametrize(
    ("kind", "step", "every_ms"),
    [
        (QuotaBounds, produce, 100), (QuotaBounds, fetch, 100), (RequestRates, ask, 100), (TopicChanges, create, 500),
    ],
)  # fmt: skip
SHAPINGS = pytest.mark.parametrize("shaping", ["paced", "sampled"])


@SHAPINGS
@ROLES
def test_a_flow_at_the_rate_passes_and_one_of_13_tenths_is_found(
    kind: type[Check], step: Callable[[StandIn], None], every_ms: float, shaping: str
) -> None:
    for factor, expected in ((1, nullcontext()), (1.3, found("over what the quota has given"))):
        world = a_world(kind, shaping)
        with expected:
            for _ in range(1_000):
                step(world)
                world.wait(every_ms / factor)


@SHAPINGS
@ROLES
def test_many_connections_that_each_pass_once_more_are_found(
    kind: type[Check], step: Callable[[StandIn, int], None], every_ms: float, shaping: str
) -> None:
    world = a_world(kind, shaping)

    def pass_once_more() -> None:
        for connection in range(200):
            step(world, connection)

    with found("over what the quota has given"):
        pass_once_more()


# -- bytes --


@pytest.mark.parametrize("ms", [4_900, 5_000])
def test_a_request_that_stalls_delays_others_for_as_long_as_its_bytes_are_worth(ms: int) -> None:
    world = a_world(QuotaBounds)
    stalled = world.send(size=50_004, connection=2)
    world.forward(stalled)
    world.wait(ms)
    for _ in range(20):
        produce(world)

    with found("over what the quota has given") if ms < 5_000 else nullcontext():
        world.give(stalled, world.answer(stalled))


def test_a_request_that_goes_on_in_debt_is_found() -> None:
    world = a_world(QuotaBounds)
    stalled = world.send(size=50_004, connection=2)
    world.begin(stalled)
    world.wait(3_000)
    world.exchange(size=60_004)
    with found("begins or goes on"):
        world.ledger.goes_on(stalled)


def test_fetches_that_ask_for_more_than_the_quota_together_or_alone_are_found() -> None:
    world = a_world(QuotaBounds)

    def ask_together() -> None:
        for connection in range(100):
            world.forward(world.send(connection=connection, **asking(10_000)))

    with found("with others for"):
        ask_together()
    world = a_world(QuotaBounds, "sampled")
    for number in range(115):
        if number == 30:
            world.exchange(**asking(50_000))
        fetch(world)
    with found("the quota has no more than"):
        world.forward(world.send(**asking(50_000)))


def test_a_share_fetch_in_debt_may_ask_for_nothing_only() -> None:
    world = a_world(QuotaBounds)
    world.exchange(78, api_version=1, response=300_000)
    first, second = (world.send(78, api_version=1) for _ in range(2))
    world.forward(first, transfer.share_fetch.request(first.correlation_id, 1, "etl", (), max_bytes=0))
    with found("over what the quota has given"):
        world.forward(second, transfer.share_fetch.request(second.correlation_id, 1, "etl", (), max_bytes=10_000))


@pytest.mark.parametrize("is_charged", [False, True])
def test_a_raised_quota_gives_all_the_time_since_the_last_charge(is_charged: bool) -> None:
    world = a_world(QuotaBounds)
    for _ in range(10):
        produce(world)
    world.wait(900)
    lost = world.send(size=104, connection=2)
    world.forward(lost)
    if is_charged:
        world.give(lost, world.answer(lost))
    world.leave(2, by_client=False)
    world.wait(20)
    change_rules(world, producer_byte_rate=10 * RATE)

    def produce_all() -> None:
        for _ in range(90):
            produce(world)

    with found() if is_charged else nullcontext():
        produce_all()


@pytest.mark.parametrize("owed_ms", [500, 5_000])
def test_windows_give_all_at_once_as_soon_as_the_debt_of_before_is_paid(owed_ms: int) -> None:
    world = a_world(QuotaBounds)
    world.exchange(size=int(RATE * (1 + owed_ms / 1_000)))
    world.settings = Settings()
    change_rules(world, producer_byte_rate=RATE)
    world.wait(700)
    for _ in range(60):
        produce(world)
    world.wait(1_000)

    with found() if owed_ms > 1_000 else nullcontext():
        produce(world)


EIGHT = [
    ("alice", "etl"), ("alice", "<default>"), ("alice", None), ("<default>", "etl"), ("<default>", "<default>"),
    ("<default>", None), (None, "etl"), (None, "<default>"),
]  # fmt: skip


def rules(entities: list[tuple[str | None, str | None]]) -> Rules:
    quotas: list[Mapping[str, object]] = []
    for rate, (user, client_id) in enumerate(entities, 1):
        quotas.append({"user": user, "client-id": client_id, PRODUCE: rate})
    return Rules(quotas, PRODUCE, Settings())


@pytest.mark.parametrize("first", range(8))
def test_the_first_of_the_eight_levels_wins(first: int) -> None:
    table = rules(EIGHT[first:])
    tags = table.tags(ETL.user, ETL.client_id)
    limit = table.limit(tags)
    assert limit is not None
    assert limit.rate == 1
    assert tags[0] == ("alice" if first < 6 else "")


def test_an_empty_client_id_has_only_the_limits_of_users() -> None:
    assert rules([(None, "<default>")]).limit(("", "")) is None
    table = rules([("<default>", "<default>"), ("<default>", None)])
    limit = table.limit(table.tags("alice", ""))
    assert limit is not None
    assert limit.rate == 2


def test_windows_of_kafka_are_those_that_were_computed_by_hand() -> None:
    rate = KafkaRate(11, 1_000)
    rate.record(300_000, 0)
    assert rate.throttle_ms(10_000, 0) == 20_000  # 30 s of the limit, less ten windows
    rate = KafkaRate(2, 1_000)
    rate.record(50_000, 0)
    rate.record(10_000, 999)  # in the same window, which counts until 2,999
    assert rate.throttle_ms(10_000, 2_998) == 60_000 / 10 - 2_998
    assert rate.throttle_ms(10_000, 2_999) == 0
    rate = KafkaRate(2, 1_000)
    for at_ms in (0, 1_000, 2_000, 3_000):
        rate.record(10_000, at_ms)
    # The one of 1,000 is too old by now.
    assert rate.throttle_ms(5_000, 3_000) == 20_000 / 5 - 1_000


# -- requests --


def test_requests_that_waited_for_a_dial_are_worth_that_time_once() -> None:
    world = a_world(RequestRates)
    waiting = [world.send(3, connection=connection) for connection in range(300, 340)]
    world.wait(2_000)
    for request in waiting:  # 20 for the two seconds, and 10 for the burst
        world.forward(request)
        world.give(request, world.answer(request))
    world.wait(700)
    with found("requests over"):
        ask(world)


def test_requests_of_clients_that_have_left_count() -> None:
    world = a_world(RequestRates)
    for connection in range(12):  # a burst of 10, and what rounding may be worth
        world.forward(world.send(3, connection=connection))
        world.leave(connection)
    ask(world, 13)
    with found("requests over"):
        ask(world, 14)


@pytest.mark.parametrize(("waited_ms", "may_pass"), [(5_000, True), (200, False)])
def test_members_of_groups_wait_for_five_seconds_at_most(waited_ms: float, may_pass: bool) -> None:
    world = a_world(RequestRates)
    for connection in range(13):
        ask(world, connection)
    heartbeat = world.send(12, connection=13)
    for _ in range(round(waited_ms / 100)):
        world.wait(100)
        ask(world, 14)

    with nullcontext() if may_pass else found("requests over"):
        world.forward(heartbeat)


def test_rules_of_others_forgive_nothing() -> None:
    world = a_world(RequestRates)
    for connection in range(13):
        ask(world, connection)
    world.rules_changed([{"client-id": "etl", "request_rate": 10}, {"client-id": "web", "request_rate": 1}])
    for connection in range(30):
        ask(world, connection)  # nobody knows yet under which rules
    world.wait(1_000)
    for connection in range(10):
        ask(world, connection)
    with found("requests over"):
        ask(world, 11)


# -- topics --


def grow_twice(world: StandIn, partitions: int, second_error: int) -> None:
    """Let two connections send the same request at once, as a client does that has given up the first."""
    world.cluster.topics["topic"] = topic = SimpleNamespace(partitions=[0])
    both = [about_topic(world, "topic", partitions, each, api_key=37, api_version=3) for each in (1, 2)]
    for change in both:
        world.forward(change)
    topic.partitions = [*range(partitions)]
    for change, error in zip(both, (0, second_error), strict=True):
        tell(world, change, error)


def test_partitions_that_two_requests_have_added_count_twice_unless_one_is_refused() -> None:
    for error, expected in ((INVALID_PARTITIONS, nullcontext()), (0, found("partitions over"))):
        world = a_world(TopicChanges)
        grow_twice(world, 23, error)
        with expected:
            create(world)


@pytest.mark.parametrize(("version", "wants", "waits"), [(3, 24, True), (2, 23, True), (3, 23, False)])
def test_a_change_that_changes_something_or_that_cannot_be_refused_waits_for_the_debt(
    version: int, wants: int, waits: bool
) -> None:
    world = a_world(TopicChanges)
    grow_twice(world, 23, 0)
    change = about_topic(world, "topic", wants, api_key=37, api_version=version)
    with found("partitions over") if waits else nullcontext():
        world.forward(change)


BURST = 22


def make(world: StandIn, partitions: int, error: int = 0, *, throttle_ms: int = 0) -> None:
    change = about_topic(world, "topic-1", partitions)
    world.forward(change)
    tell(world, change, error, throttle_ms=throttle_ms)


def refuse(world: StandIn) -> None:
    tell(world, about_topic(world, "topic-1", 1), REFUSED, throttle_ms=500, by_broker=False)


@pytest.mark.parametrize(("partitions", "error", "is_owed"), [(23, 0, True), (21, 0, False), (23, EXISTS, False)])
def test_a_change_is_refused_only_while_those_of_before_are_owed(partitions: int, error: int, is_owed: bool) -> None:
    world = a_world(TopicRoom)
    make(world, partitions, error)
    with nullcontext() if is_owed else found("and it is refused"):
        refuse(world)


@pytest.mark.parametrize("is_forwarded", [False, True])
def test_what_may_be_on_its_way_is_owed_until_its_client_has_gone_and_no_answer_can_come(is_forwarded: bool) -> None:
    world = a_world(TopicRoom)
    change = about_topic(world, "topic-1", BURST + 1, 300)
    if is_forwarded:
        world.forward(change)
    refuse(world)
    world.leave(300)
    for end in (change.client_end, change.broker_end) if is_forwarded else ():
        world.wait(60_000)
        refuse(world)
        end.is_open = False  # type: ignore[union-attr]
    if change.client_end is not None:
        change.client_end.peer.is_open = False
    world.wait(500)
    refuse(world)
    world.wait(2_000)
    with found("and it is refused"):
        refuse(world)


@pytest.mark.parametrize(("throttle_ms", "is_right"), [(2_000, True), (2_100, False)])
def test_a_client_waits_for_what_it_owes_and_not_longer(throttle_ms: int, is_right: bool) -> None:
    world = a_world(TopicRoom)
    with nullcontext() if is_right else found("told to wait for 2100 ms"):
        make(world, BURST + 4, throttle_ms=throttle_ms)


# -- connections --

PORTS = {PORT: 0}


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_host"])
def test_one_open_connection_too_many_is_found(limit: str) -> None:
    world = StandIn(ConnectionLimits, (), limited_ports=PORTS, **{limit: 2})
    transports: list[Any] = []
    world.scenario.proxy.process.transports = transports

    def serve(*, has_ended: bool = False) -> None:
        transports.append(SimpleNamespace(end=SimpleNamespace(local=PORT, remote=CLIENT, has_ended=has_ended)))
        world.ledger.served(PORT, CLIENT)

    serve()
    serve()
    serve(has_ended=True)
    with found("3 are open, 2 may be"):
        serve()


@pytest.mark.parametrize("by_address", [True, False])
def test_new_connections_are_judged_by_their_rate(by_address: bool) -> None:
    rule = {"ip": "<default>", "connection_creation_rate": 2} if by_address else {}

    def come(every_ms: float) -> None:
        world = StandIn(ConnectionLimits, [rule], limited_ports=PORTS, max_creation_rate=None if by_address else 2.0)
        for _ in range(300):
            (world.ledger.served if by_address else world.ledger.accepted)(PORT, CLIENT)
            world.wait(every_ms)

    come(500)
    with found("more than the quota has given"):
        come(300)


def test_connections_that_are_refused_before_their_broker_is_known_have_no_rate() -> None:
    world = StandIn(ConnectionLimits, [], limited_ports=PORTS, max_creation_rate=2.0)
    bind = SimpleNamespace(host=PORT[0], port=PORT[1])
    listener, brokers = (
        SimpleNamespace(settings=SimpleNamespace(bind=bind)),
        SimpleNamespace(is_introduced=lambda _: False),
    )
    world.scenario.proxy.server = SimpleNamespace(listeners=[listener], brokers=brokers)
    for _ in range(300):
        world.ledger.accepted(PORT, CLIENT)


def test_open_connections_of_a_bucket_are_counted_if_all_are_alive_also_those_of_before() -> None:
    world = StandIn(ConnectionLimits, [{"client-id": "etl", "connections": 2}])
    for connection in (1, 2, 3):
        ask(world, connection)
    world.leave(1, by_client=False)  # so that there were two
    for connection in (2, 3):
        ask(world, connection)
    world.rules_changed([{"user": "<default>", "connections": 2}])
    world.wait(2_000)
    world.ledger.connected("producer-1", 4, ETL)
    for connection in (4, 2, 3):
        ask(world, connection)
    with found("has 3 connections"):
        ask(world, 4)
