"""A stand-in for the world, in which the tests of the checks write events by hand."""

from collections.abc import Mapping, Sequence
from struct import pack
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from tests.simulation.checks.check import Check
from tests.simulation.checks.settings import Settings
from tests.simulation.clients.profiles import HEALTHY
from tests.simulation.clock import Clock
from tests.simulation.ledger import Entity, Exchange, Ledger
from tests.simulation.story import Story
from tests.simulation.violation import Violation

ETL = Entity("alice", "etl", "10.0.2.1")
BROKER = 1
PORT, CLIENT = ("10.0.0.1", 9192), ("10.0.2.1", 40_000)
_STEP_MS = 500.0


def found(text: str | None = None) -> Any:
    """Expect that a check fails, with a text like this."""
    return pytest.raises(Violation, match=text)


class FakeEnd:
    """The end of a connection: open, with nothing on the way, unless ``state`` says otherwise."""

    local, remote = PORT, CLIENT
    is_open = True
    is_on_the_way = has_shut_down = has_ended = is_reset = is_timed_out = False
    unread_bytes = unsent_bytes = received_bytes = written_bytes = 0

    def __init__(self, peer: "FakeEnd | None" = None, **state: Any) -> None:
        self.link = SimpleNamespace(is_cut=False, most_ms=lambda _: 1.0)
        self.peer = peer or FakeEnd(self)
        vars(self).update(state)


class StandIn:
    """The part of the world that the checks use. Tests move the clock and call the ledger.

    It is watched by a check of ``kind``, which is told the rules, if there are any.
    """

    def __init__(
        self, kind: type[Check] | None = None, rules: Sequence[Mapping[str, object]] | None = None, **settings: Any
    ) -> None:
        self.clock = Clock()
        self.scheduler = SimpleNamespace(calls=0)
        self.ledger = Ledger(self.clock)
        self.story = Story(self.clock)
        self.network: Any = SimpleNamespace(links={}, unreachable={}, lost_dials=[])
        self.settings = Settings(**settings)
        self.cluster: Any = SimpleNamespace(topics={}, deleted=[], lost=[])
        healthy = SimpleNamespace(setting=SimpleNamespace(habits=HEALTHY))
        self.scenario: Any = SimpleNamespace(
            fired={"broker crash": 0}, cluster=self.cluster, actors={"producer-1": healthy},
            setup=SimpleNamespace(has_second_names=False, replication=1, brokers=1, is_cluster=False),
            theme=SimpleNamespace(disk_ms=(0.0, 0.0)),
            proxy=SimpleNamespace(is_running=True, server=None, process=SimpleNamespace(transports={})),
        )  # fmt: skip
        self.check: Any = None
        if kind is not None:
            self.check = kind(self)  # type: ignore[arg-type] # it stands in for the world
            self.ledger.checks = [self.check]
        if rules is not None:
            self.rules_changed(rules)

    def rules_changed(self, rules: Sequence[Mapping[str, object]]) -> None:
        """Let other rules be in force."""
        self.ledger.book.change([rules], self.settings, self.clock.now_ms)
        for check in self.ledger.checks:
            check.rules_changed(rules)

    def fail(self, check: str, text: str) -> NoReturn:
        """Raise a violation."""
        raise Violation(check, text)

    def wait(self, ms: float) -> None:
        """Let time pass, with a step of the checks each half second."""
        while True:
            part_ms = min(ms, _STEP_MS)
            ms -= part_ms
            self.clock.advance(self.clock.now_ns + round(part_ms * 1_000_000))
            for check in self.ledger.checks:
                check.step()
            if ms <= 0:
                return

    def send(
        self,
        api_key: int = 0,
        *,
        api_version: int = 7,
        size: int = 100,
        connection: int = 1,
        entity: Entity = ETL,
        client: str = "producer-1",
        body: bytes | None = None,
        end: FakeEnd | None = None,
        **more: Any,
    ) -> Exchange:
        """Send a request of ``size`` bytes, with its size."""
        correlation_id = self.ledger.next_id()
        name = entity.client_id.encode()
        head = pack(">hhih", api_key, api_version, correlation_id, len(name)) + name
        body = bytes(max(0, size - 4 - len(head))) if body is None else body
        frame = pack(">i", len(head) + len(body)) + head + body
        exchange = Exchange(
            correlation_id, frame, api_key=api_key, api_version=api_version, client=client, connection=connection,
            entity=entity, broker=BROKER, **more,
        )  # fmt: skip
        exchange.client_end = end or FakeEnd()  # type: ignore[assignment] # it stands in for an end
        return self.ledger.sent(exchange)

    def begin(self, exchange: Exchange, node_id: int = BROKER, end: FakeEnd | None = None) -> None:
        """Let the proxy forward the first bytes of a request."""
        own: Any = end or FakeEnd()
        self.ledger.forwarding(exchange.correlation_id, node_id, exchange.api_key, own)

    def forward(
        self, exchange: Exchange, frame: bytes | None = None, *, node_id: int = BROKER, end: FakeEnd | None = None
    ) -> None:
        """Let the proxy forward a request, and the broker get it."""
        self.begin(exchange, node_id, end)
        self.ledger.forwarded(exchange)
        self.ledger.at_broker(node_id, exchange.request if frame is None else frame, exchange.correlation_id)

    def answer(self, exchange: Exchange, size: int = 60, frame: bytes | None = None) -> bytes:
        """Let the broker answer."""
        if frame is None:
            frame = pack(">ii", size - 4, exchange.correlation_id) + bytes(size - 8)
        self.ledger.answered(exchange.correlation_id, frame)
        return frame

    def give(self, exchange: Exchange, frame: bytes, *, throttle_ms: int = 0) -> None:
        """Let the proxy pass a response on, and the client get it."""
        self.ledger.passed(exchange.correlation_id, len(frame))
        self.ledger.received(exchange, frame, throttle_ms=throttle_ms)

    def exchange(self, api_key: int = 0, *, throttle_ms: int = 0, response: int = 60, **more: Any) -> Exchange:
        """Send, forward, answer and pass on, all at once."""
        exchange = self.send(api_key, **more)
        self.forward(exchange)
        self.give(exchange, self.answer(exchange, response), throttle_ms=throttle_ms)
        return exchange

    def leave(self, connection: int = 1, *, by_client: bool = True) -> None:
        """Let a connection end."""
        self.ledger.disconnected("producer-1", connection, by_client=by_client)
