"""The base of all checks: a method for each event, which does nothing."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from tests.simulation.ledger import Entity, Exchange
    from tests.simulation.world import World

# Rules as in the file's section ``quotas``.
Quotas: TypeAlias = Sequence[Mapping[str, object]]


class Check:
    """Watches one promise. A method calls ``world.fail(self.name, text)`` when it is broken.

    ``step`` is called twice a simulated second. ``end`` is called once, after the clients have gone and the proxy has
    drained and stopped.
    """

    name: ClassVar[str] = ""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.ledger = world.ledger

    def sent(self, exchange: "Exchange") -> None:
        """A client has written a request."""

    def forwarding(self, exchange: "Exchange") -> None:
        """The proxy has written the first byte of a request to a broker."""

    def continuing(self, exchange: "Exchange") -> None:
        """The proxy writes more of a request to a broker, of which it had written nothing for two seconds."""

    def forwarded(self, exchange: "Exchange") -> None:
        """The proxy has written the last byte of a request to a broker."""

    def at_broker(self, exchange: "Exchange", node_id: int, frame: bytes) -> None:
        """A whole request has arrived at a broker, as ``frame`` with its size."""

    def answered(self, exchange: "Exchange") -> None:
        """A broker has written a response."""

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """The proxy has written the last byte of a response to a client."""

    def received(self, exchange: "Exchange") -> None:
        """A client has a whole response."""

    def connection_opened(self, client: str, connection: int, entity: "Entity") -> None:
        """A client's connection to the proxy is open."""

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """A client's connection is gone."""

    def accepted(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        """The proxy has accepted a connection of ``remote`` at its address ``local``."""

    def served(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        """The proxy begins to serve a connection that it has accepted."""

    def proxy_started(self, number: int) -> None:
        """A process of the proxy serves. ``number`` counts them from 1."""

    def proxy_stopping(self, number: int) -> None:
        """A process of the proxy was asked to stop. It throttles nothing from now on."""

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """A process of the proxy has stopped in order, or was killed."""

    def rules_changed(self, *possible: Quotas) -> None:
        """One of these sets of quotas is in force for all requests from now on.

        Those of before may hold for another ``SETTLE_MS``. There are several sets while a change of stored quotas is
        not acknowledged.
        """

    def faults_ended(self) -> None:
        """All faults are over, for good. Clients send nothing new."""

    def step(self) -> None:
        """Half a simulated second has passed, and a step of an event loop is done."""

    def end(self) -> None:
        """The world has ended."""
