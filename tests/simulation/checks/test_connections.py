"""Tests that connections which end too early, too late or nowhere are found, and what one of them takes too much of."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checks import frames
from tests.simulation.checks.broker_names import BrokerNames, may_have_two_buckets
from tests.simulation.checks.broker_ports import BrokerPorts
from tests.simulation.checks.check import Check
from tests.simulation.checks.cut_short import CutShort
from tests.simulation.checks.ends import Ends
from tests.simulation.checks.isolation import Isolation
from tests.simulation.checks.memory import MOST_OF_ONE_BYTES, TWO_LOOKS_MS, Memory
from tests.simulation.checks.support import CLIENT, ETL, PORT, FakeEnd, StandIn, found
from tests.simulation.checks.work import Work
from tests.simulation.ledger import Exchange

# -- its end --


def open_world(kind: type[Check], **settings: Any) -> tuple[StandIn, Exchange, FakeEnd]:
    """Return a world with a request at a broker, and the proxy's end to that broker."""
    world = StandIn(kind, limited_ports={PORT: 0}, **settings)
    broker = FakeEnd(local=("10.0.0.1", 50_000))
    world.ledger.proxy_started(1)
    world.ledger.connected("producer-1", 1, ETL)
    exchange = world.send()
    world.forward(exchange, end=broker)
    ends = (exchange.client_end.peer, broker)  # type: ignore[union-attr]
    transports = [SimpleNamespace(end=end, is_closing=lambda: False) for end in ends]
    world.scenario.proxy.process.transports = transports
    return world, exchange, broker


def test_a_vanished_broker_must_be_found() -> None:
    world, _, broker = open_world(Ends)
    world.wait(200_000)
    broker.link.is_cut = True
    world.wait(45_000)
    with found("its broker has vanished"):
        world.wait(20_000)


def test_a_client_without_a_broker_must_be_closed() -> None:
    world, _, _ = open_world(Ends)
    del world.scenario.proxy.process.transports[-1]
    with found("its broker has gone"):
        world.wait(20_000)


def test_an_idle_connection_must_be_closed() -> None:
    world, exchange, _ = open_world(Ends, idle_ms=4_000)
    world.wait(60_000)  # it waits for its response
    world.give(exchange, world.answer(exchange))
    with found("got idle"):
        world.wait(20_000)


def test_a_request_behind_the_proxys_end_is_found() -> None:
    world, exchange, broker = open_world(Ends)
    exchange.client_end.peer.has_shut_down = True  # type: ignore[union-attr, misc]
    with found("no response any more"):
        world.begin(exchange, end=broker)


@pytest.mark.parametrize("ends_by", ["the proxy", "its broker", "a stop"])
def test_a_connection_is_not_closed_in_the_middle_of_a_request(ends_by: str) -> None:
    world, exchange, broker = open_world(CutShort)
    broker.has_ended = ends_by == "its broker"
    if ends_by == "a stop":
        world.ledger.proxy_stopping(1)
    exchange.client_end.has_ended = True  # type: ignore[union-attr, misc]
    if ends_by == "the proxy":
        with found("which its broker has"):
            world.leave(by_client=False)
    else:
        world.leave(by_client=False)


def test_a_request_that_waits_or_has_no_response_is_not_cut_off() -> None:
    world, exchange, _ = open_world(CutShort, hides_addresses=False)
    world.give(exchange, world.answer(exchange))
    waiting = world.send(end=FakeEnd(has_ended=True))
    world.wait(6_000)
    with found("which has waited for 6000 ms to be forwarded"):
        world.leave(by_client=False)
    world.ledger.connected("producer-1", 2, ETL)
    for number in (1, 2):
        waiting = world.send(connection=2, expects_response=False, end=FakeEnd(has_ended=True))
        if number == 1:
            world.forward(waiting)
    world.leave(2, by_client=False)
    with found("expects no response, was read, and is not forwarded"):
        world.wait(11_000)


@pytest.mark.parametrize("fault", ["quotas changed", "broker crash"])
@pytest.mark.parametrize("unanswered", [False, True])
def test_a_connection_that_the_proxy_closes_for_nothing_is_found(fault: str, unanswered: bool) -> None:
    """A broker may close it after a request without a response, until it answers a later one."""
    world = StandIn(Isolation, idle_ms=4_000)
    world.ledger.connected("producer-1", 1, ETL)
    if unanswered:
        world.send(expects_response=False)
    world.wait(4_000)
    world.exchange()  # it is not idle any more
    world.leave(by_client=False)
    world.scenario.fired[fault] = 1
    world.wait(1)
    if fault == "broker crash":
        world.check.end()
    else:
        with found("nothing explains it"):
            world.check.end()


# -- where it leads --


def with_ports(*, has_login: bool) -> StandIn:
    world = StandIn(BrokerPorts)
    broker = {"is_up": True, "is_stalled": False, "host": "10.0.1.1", "started_ms": 1.0, "stalled_until_ms": 0.0}
    here = SimpleNamespace(**broker, has_moved_away=False)
    world.cluster.brokers = {1: here, 2: SimpleNamespace(**vars(here) | {"is_up": False})}
    world.scenario.setup = SimpleNamespace(has_login=has_login, brokers=2, node_of_cluster_at=lambda port: port - 9193)
    world.wait(10)
    return world


def come(world: StandIn, node_id: int, number: int, *, lasts_ms: float = 5.0, is_served: bool = False) -> None:
    """Let a client come to the port of a broker, and lose its connection."""
    world.wait(200)
    world.ledger.connected("producer-1", number, ETL)
    exchange = world.send(18, connection=number, end=FakeEnd(remote=("10.0.0.100", 9193 + node_id)))
    if is_served:
        world.forward(exchange)
    world.wait(lasts_ms)
    world.leave(number, by_client=False)


def test_a_known_broker_that_is_not_dialled_is_found() -> None:
    world = with_ports(has_login=False)
    world.exchange(frames.METADATA, connection=100)
    world.wait(1)
    told = world.send(frames.METADATA, connection=100)
    world.forward(told)
    world.wait(1)
    world.give(told, world.answer(told))
    for number in range(9):
        come(world, 2, number)  # it is down
    come(world, 1, 10)
    come(world, 1, 11)
    with found("port of broker 1, which is there"):
        come(world, 1, 12)


def test_the_port_of_an_unknown_broker_that_leads_to_nobody_is_found() -> None:
    world = with_ports(has_login=True)
    for number in range(9):
        come(world, 2, number, lasts_ms=2_000)  # it was not refused
    for number in range(9):
        come(world, 2, 10 + number, is_served=number == 4)
    with found(r"not known, and \[1\] could serve"):
        come(world, 2, 30)


# -- which broker it is --


def named(sets: int = 1) -> StandIn:
    world = StandIn(BrokerNames)
    world.scenario.setup.has_second_names = True
    upstreams = {name: SimpleNamespace(broker=f"broker {name % sets}") for name in range(2)}
    world.scenario.proxy.server = SimpleNamespace(brokers=SimpleNamespace(single=upstreams))
    world.scenario.broker_names = world.check
    world.scenario.fired |= {"connection reset": 0, "quotas changed": 0}
    world.ledger.proxy_started(1)
    return world


@pytest.mark.parametrize(
    ("kind", "served_before_ms", "excuses"),
    [
        ("quotas changed", None, False),
        ("connection reset", None, True),
        ("connection reset", 1_700, True),
        ("broker crash", 2_100, False),
    ],
)
def test_a_fault_until_two_seconds_after_the_first_client_excuses_two_sets_of_buckets(
    kind: str, served_before_ms: float | None, excuses: bool
) -> None:
    world: Any = named()
    world.wait(60_000)
    if served_before_ms is not None:
        world.ledger.served(PORT, CLIENT)
        world.wait(served_before_ms)
    world.scenario.fired[kind] += 1
    world.wait(100)
    assert may_have_two_buckets(world) == excuses
    world.wait(60_000)
    world.ledger.proxy_started(2)
    assert not may_have_two_buckets(world)


def test_two_sets_without_an_excuse_are_found() -> None:
    world = named(sets=2)
    world.ledger.served(PORT, CLIENT)
    with found("1 brokers with two names each have 2 sets of buckets"):
        world.wait(2_100)


# -- what it takes --


def stuck(*unsent_bytes: int) -> StandIn:
    """Return a world whose proxy has a connection for each number, with so many bytes to send."""
    world = StandIn(Memory, max_buffered=1_000_000)
    ends = [FakeEnd(unsent_bytes=size, written_bytes=size + 100) for size in unsent_bytes]
    world.scenario.proxy.process.transports = [SimpleNamespace(end=end) for end in ends]
    world.wait(0)
    return world


def test_a_connection_that_holds_more_than_a_few_reads_is_found() -> None:
    stuck(MOST_OF_ONE_BYTES)
    with found("is the most"):
        stuck(0, MOST_OF_ONE_BYTES + 1)


@pytest.mark.parametrize(("number", "is_slow"), [(5, False), (4, False), (5, True)])
def test_peers_that_take_nothing_hold_at_most_max_buffered(number: int, is_slow: bool) -> None:
    world = stuck(*[250_000] * number)
    for transport in world.scenario.proxy.process.transports if is_slow else ():
        transport.end.written_bytes += 1_000  # and as many were taken
    if number == 4 or is_slow:
        world.wait(TWO_LOOKS_MS + 1)
    else:
        with found("max_buffered"):
            world.wait(TWO_LOOKS_MS + 1)


def begin(world: StandIn, number: int, *, names: int = 1, connection: int = 1) -> None:
    for at in range(number):
        world.forward(world.send(entity=ETL._replace(client_id=f"etl-{at % names}"), connection=connection))


@pytest.mark.parametrize(("names", "most"), [(1, 1_500), (2, 300)])
def test_requests_of_one_callback_are_bounded(names: int, most: int) -> None:
    world = StandIn(Work)
    begin(world, 512 + 303, names=2, connection=2)  # they have waited for a dial
    begin(world, 1)
    world.scheduler.calls += 1
    begin(world, most, names=names)
    begin(world, 2, names=2)
    with found("too many others"):
        begin(world, 2, names=2)


def test_buckets_of_a_connection_are_bounded() -> None:
    world = StandIn(Work)
    account = SimpleNamespace(peer_host="10.0.2.1", buckets=[None] * 5, stale_buckets=[None] * 12)
    connection = SimpleNamespace(state=SimpleNamespace(account=account))
    world.scenario.proxy.server = SimpleNamespace(listeners=[SimpleNamespace(connections=[connection])])
    world.wait(500)
    account.stale_buckets.append(None)
    with found("holds 18 buckets"):
        world.wait(500)
