"""A stand-in for the world, in which the tests of the checks write events by hand."""

from struct import pack
from types import SimpleNamespace
from typing import Any, NoReturn

from tests.simulation.checks.check import Check
from tests.simulation.checks.settings import Settings
from tests.simulation.clients.profiles import HEALTHY
from tests.simulation.clock import Clock
from tests.simulation.ledger import Entity, Exchange, Ledger
from tests.simulation.story import Story
from tests.simulation.violation import Violation

ETL = Entity("alice", "etl", "10.0.2.1")
BROKER = 1


class StandIn:
    """The part of the world that the checks use. Tests move the clock and call the ledger."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.clock = Clock()
        self.scheduler = SimpleNamespace(calls=0)
        self.ledger = Ledger(self.clock)
        self.story = Story(self.clock)
        self.network = SimpleNamespace(links={})
        self.settings = settings or Settings()
        self.cluster = SimpleNamespace(topics={}, deleted=[], lost=[])
        healthy = SimpleNamespace(setting=SimpleNamespace(habits=HEALTHY))
        self.scenario = SimpleNamespace(
            fired={"broker crash": 0}, cluster=self.cluster, actors={"producer-1": healthy},
            setup=SimpleNamespace(has_second_names=False), theme=SimpleNamespace(disk_ms=(0.0, 0.0)),
        )  # fmt: skip

    def fail(self, check: str, text: str) -> NoReturn:
        """Raise a violation."""
        raise Violation(check, text)

    def watch(self, kind: type[Check]) -> Any:
        """Return a check that sees the events from now on."""
        check = kind(self)  # type: ignore[arg-type] # it stands in for the world
        self.ledger.checks = [*self.ledger.checks, check]
        return check

    def wait(self, ms: float) -> None:
        """Let time pass."""
        self.clock.advance(self.clock.now_ns + round(ms * 1_000_000))
        for check in self.ledger.checks:
            check.step()

    def send(
        self,
        api_key: int = 0,
        *,
        api_version: int = 7,
        size: int = 100,
        connection: int = 1,
        entity: Entity = ETL,
        client: str = "producer-1",
        detail: Any = None,
        body: bytes | None = None,
        expects_response: bool = True,
    ) -> Exchange:
        """Send a request of ``size`` bytes, with its size."""
        correlation_id = self.ledger.next_id()
        name = entity.client_id.encode()
        head = pack(">hhih", api_key, api_version, correlation_id, len(name)) + name
        body = bytes(max(0, size - 4 - len(head))) if body is None else body
        frame = pack(">i", len(head) + len(body)) + head + body
        return self.ledger.sent(
            Exchange(
                correlation_id, frame, api_key=api_key, api_version=api_version, client=client, connection=connection,
                entity=entity, broker=BROKER, detail=detail, expects_response=expects_response,
            )
        )  # fmt: skip

    def forward(self, exchange: Exchange, frame: bytes | None = None, *, node_id: int = BROKER) -> None:
        """Let the proxy forward a request, and the broker get it."""
        self.ledger.forwarding(exchange.correlation_id, node_id, exchange.api_key)
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
