"""Tests that a frame, a record or a line of the usage log that is changed, lost, doubled or out of order is found."""

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checks.answers import Answers
from tests.simulation.checks.durability import Durability
from tests.simulation.checks.in_sync import InSync
from tests.simulation.checks.refused_order import RefusedOrder
from tests.simulation.checks.support import StandIn, found
from tests.simulation.checks.usage_log import UsageLog
from tests.simulation.ledger import Exchange
from tests.simulation.wire import greeting, transfer
from tests.simulation.wire.common import NodeEndpoint
from tests.simulation.wire.records import Batch, write_batch

# -- frames --


def fetch_body(max_bytes: int = 50_000, min_bytes: int = 1_000, epoch: int = 0) -> bytes:
    return pack(">iiii", -1, 500, min_bytes, max_bytes) + b"\0" + pack(">ii", 0, epoch) + bytes(10)


def fetch_as(**edit: int) -> None:
    """Let the proxy change a fetch."""
    world = StandIn(Answers)
    exchange = world.send(1, api_version=11, body=fetch_body())
    world.forward(exchange, exchange.request.replace(fetch_body(), fetch_body(**edit)))


def test_only_a_lower_fetch_without_a_session_passes() -> None:
    fetch_as(max_bytes=500, min_bytes=500)
    fetch_as(epoch=-1)
    for edit in ({"max_bytes": 60_000}, {"max_bytes": 500}, {"epoch": 1}):
        with found("is changed"):
            fetch_as(**edit)


def test_a_changed_request_is_found() -> None:
    world = StandIn(Answers)
    exchange = world.send(size=200)
    with found("from byte 199 on 00 became 01"):
        world.forward(exchange, exchange.request[:-1] + b"\1")


def test_requests_and_responses_out_of_order_are_found() -> None:
    world = StandIn(Answers, hides_addresses=False)
    with found("is at broker 2"):
        world.forward(world.send(connection=3), node_id=2)
    first, second = world.send(), world.send()
    world.forward(first)
    world.forward(second)
    with found("after a later request"):
        world.begin(first)
    world.answer(first)
    with found("comes first"):
        world.give(second, world.answer(second))
    exchange = world.exchange(connection=2)
    with found("nothing is awaited"):
        world.ledger.passed(exchange.correlation_id, 60)
    early = world.send(connection=4)
    world.begin(early)
    with found("before it was forwarded as a whole"):
        world.ledger.passed(early.correlation_id, 60)


Write = Callable[[int], bytes]


def produced(version: int, offset: int, **more: Any) -> Write:
    topic = bytes(15) + b"\1" if version >= 13 else "t"
    answers = [transfer.TopicAnswer(topic, [transfer.PartitionAnswer(0, 0, offset)])]
    return lambda number: transfer.produce.response(number, version, answers, **more)


def brokers(host: str) -> Write:
    return lambda number: transfer.metadata.response(number, 9, [NodeEndpoint(1, host, 19_092)], [])


def versions(newest: int) -> Write:
    return lambda number: greeting.api_versions.response(number, 0, {0: (3, newest), 3: (0, 99)})


LEADER = produced(10, 42, endpoints=[NodeEndpoint(1, "10.0.4.1", 9_092)])


@pytest.mark.parametrize(
    ("api", "before", "after", "wrong", "text"),
    [
        ((0, 3), produced(3, 42), produced(3, 42, throttle_ms=1_234), produced(3, 43), "is changed"),
        ((0, 9), produced(9, 42), produced(9, 42, throttle_ms=1_234), produced(9, 43), "is changed"),
        ((0, 13), produced(13, 42), produced(13, 42, throttle_ms=1_234), produced(13, 43), "is changed"),
        ((0, 10), LEADER, None, LEADER, "address of a broker"),
        ((3, 9), brokers("10.0.1.1"), brokers("10.0.0.1"), brokers("10.0.1.1"), "address of a broker"),
        ((18, 0), versions(14), versions(13), versions(14), "offers versions that are too new"),
        ((0, 7), produced(7, 42), None, lambda _: produced(7, 42)(3), "has the response of another request"),
    ],
)
def test_only_documented_fields_of_a_response_may_be_edited(
    api: tuple[int, int], before: Write, after: Write | None, wrong: Write, text: str
) -> None:
    world = StandIn(Answers)

    def pass_on(written: Write) -> None:
        exchange = world.send(api[0], api_version=api[1])
        world.forward(exchange)
        world.answer(exchange, frame=before(exchange.correlation_id))
        world.give(exchange, written(exchange.correlation_id))

    if after is not None:
        pass_on(after)
    with found(text):
        pass_on(wrong)


def test_an_answer_of_the_proxy_itself_needs_a_reason() -> None:
    world = StandIn(Answers, [{"client-id": "etl", "consumer_byte_rate": 1_000}], has_queue=False)

    def empty(throttle_ms: int = 500, *, is_forwarded: bool = False) -> None:
        exchange = world.send(1, api_version=11, body=fetch_body())
        if is_forwarded:
            world.forward(exchange)
        frame = transfer.fetch.response(exchange.correlation_id, 11, [], throttle_ms=throttle_ms)
        world.give(exchange, frame, throttle_ms=throttle_ms)

    empty()
    with found("without its broker"):
        empty(is_forwarded=True)
    with found("without records or a throttle time"):
        empty(throttle_ms=0)
    world.rules_changed([])
    empty()
    world.wait(2_000)
    with found("nothing explains it"):
        empty()


def test_a_batch_that_overtakes_a_refused_one_is_found() -> None:
    world = StandIn(RefusedOrder)

    def send(sequence: int) -> Exchange:
        batch = write_batch(Batch(f"p-{sequence}", 200, 1, 7, 0, sequence))
        frame = transfer.produce.request(
            1, 8, "etl", [transfer.TopicData("orders", [transfer.PartitionData(0, batch)])]
        )
        return world.send(api_version=8, body=frame[4 + 8 + 2 + len("etl") :])

    refused, later = send(3), send(4)
    world.give(refused, bytes(60))
    world.forward(send(2))
    with found(r"\[3\] were refused"):
        world.forward(later)
    world.forward(send(3))
    world.forward(send(4))


# -- logs of partitions --


def judge(in_log: str, *, lost: str = "", **actor: Any) -> None:
    """Compare the batches of a partition with what an actor has written or read."""
    world = StandIn(Durability)
    batches = [SimpleNamespace(token=token, base_offset=at) for at, token in enumerate(in_log.split())]
    partition = SimpleNamespace(index=0, log=SimpleNamespace(batches=batches))
    world.cluster.topics = {"t": SimpleNamespace(name="t", partitions=[partition])}
    world.cluster.lost = [SimpleNamespace(topic="t", partition=0, token=token) for token in lost.split()]
    rows = {name: [("t", 0, *row) for row in value] for name, value in actor.items() if isinstance(value, list)}
    producer = {"is_idempotent": True, "may_repeat": set(), "failed": []} if "acknowledged" in actor else {}
    world.scenario.actors = {"p": SimpleNamespace(**producer | {"positions": {}} | actor | rows)}
    world.check.end()


def test_what_is_acknowledged_and_read_is_there_or_was_lost_in_a_crash() -> None:
    judge("p-1 p-2", acknowledged=[(0, "p-1"), (1, "p-2")])
    judge("p-1 p-2", read=[(0, "p-1"), (1, "p-2")])
    judge("", lost="p-1", acknowledged=[(0, "p-1")])
    judge("p-1 p-1", acknowledged=[(1, "p-1")], is_idempotent=False)


@pytest.mark.parametrize(
    ("in_log", "actor", "text"),
    [
        ("p-1", {"acknowledged": [(1, "p-2")]}, "not in t-0"),
        ("p-1", {"acknowledged": [(1, "p-1")]}, "was acknowledged at"),
        ("p-1 p-1", {"acknowledged": [(0, "p-1")]}, "twice"),
        ("p-2 p-1", {"acknowledged": [(0, "p-2")]}, "is behind"),
        ("p-1", {"read": [(0, "p-2")]}, "where there is"),
        ("a-1 a-2 a-3", {"read": [(0, "a-1"), (2, "a-3")]}, "right after 0"),
        ("a-1 a-2", {"read": [(1, "a-2"), (0, "a-1")]}, "right after 1"),
    ],
)
def test_a_batch_that_is_lost_doubled_moved_or_skipped_is_found(in_log: str, actor: dict[str, Any], text: str) -> None:
    with found(text):
        judge(in_log, **actor)


@pytest.mark.parametrize("fault", ["quotas changed", "broker crash"])
def test_a_replica_that_lags_needs_a_fault(fault: str) -> None:
    world = StandIn(InSync)
    world.scenario.fired[fault] = 1
    reason = {"is_in_sync": False, "reason": "it lags for 11 s"}
    change = SimpleNamespace(at_ms=world.clock.now_ms, topic="t", partition=0, node_id=2, **reason)
    world.cluster.isr_changes = [change]
    if fault == "broker crash":
        world.check.end()
    else:
        with found("nothing explains it"):
            world.send()


# -- the usage log --


def a_log(folder: Path, *lines: object) -> StandIn:
    """Return a world whose usage log has these lines in one file."""
    world = StandIn(UsageLog)
    world.scenario.proxy.settings = {"usage_log": {"directory": str(folder)}}
    world.scenario.proxy.disk = SimpleNamespace(is_full=False, torn={})
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (folder / "usage-sim-1.jsonl").write_text(text)
    return world


def usage(amount: int, start_ms: int = 1, interval_ms: int = 1_000, user: str = "alice") -> dict[str, object]:
    return {"kind": "produce", "start_ms": start_ms, "interval_ms": interval_ms, "amount": amount, "user": user}


@pytest.mark.parametrize(("logged", "is_right"), [(996, True), (995, False), (997, False)])
def test_the_usage_log_has_what_passed(tmp_path: Path, logged: int, is_right: bool) -> None:
    world = a_log(tmp_path, usage(logged), usage(logged))
    world.exchange(size=1_000)
    if is_right:
        world.check.end()
        return
    with found("996 to 996 B have passed"):
        world.check.end()


def test_only_a_crash_or_a_hindered_stop_loses_records(tmp_path: Path) -> None:
    world = a_log(tmp_path)
    world.exchange(size=1_000)
    world.ledger.proxy_stopping(1)
    world.ledger.proxy_ended(1, is_crash=False)
    with found("0 B of produce"):
        world.check.end()
    world.ledger.proxy_started(2)
    world.ledger.proxy_stopping(2)
    world.scenario.fired["disk full"] = 1
    world.ledger.proxy_ended(2, is_crash=False)
    world.check.end()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (['{"kind"'], "half a line"),
        (['{"kind"\n'], "no record"),
        ([usage(0, 5), usage(0, 4)], "after one of"),
        ([usage(0, 5), usage(0, 5, interval_ms=2, user="bob")], "after one of"),
        ([usage(1), usage(2)], "of the same"),
        ([usage(0, user="<other>")], "has no user"),
    ],
)
def test_the_usage_log_has_whole_lines_in_order(tmp_path: Path, lines: list[object], text: str) -> None:
    with found(text):
        a_log(tmp_path, *lines).check.end()
