"""Who a simulated client is, and how it behaves."""

from typing import NamedTuple

from tests.simulation.clients.profiles import HEALTHY, Habits, Profile
from tests.simulation.ledger import Entity


class Login(NamedTuple):
    """A user that logs in with SASL PLAIN."""

    user: str
    password: str


class Setting(NamedTuple):
    """Who a client is, where it finds the proxy, and how it behaves.

    Attributes:
        name: The actor's name, such as "producer-3".
        entity: Who the client is to the quotas. The host is the claimed one if there is a PROXY header.
        source_host: Where its packets come from.
        bootstrap: The addresses that it knows at its start.
        proxy_header: The version of the PROXY protocol header that it begins with; 0 is none.
        port_offset: What it adds to the ports that brokers advertise. There they have a second name.
        forgets_bootstrap: Whether it never returns to the bootstrap addresses once it knows brokers.
        is_patient: Whether it waits for ever for a response, so that the checks see who is never answered.
    """

    name: str
    profile: Profile
    entity: Entity
    source_host: str
    bootstrap: tuple[tuple[str, int], ...]
    habits: Habits = HEALTHY
    login: Login | None = None
    proxy_header: int = 0
    is_patient: bool = False
    port_offset: int = 0
    forgets_bootstrap: bool = False


def proxy_header(version: int, host: str, port: int, to: tuple[str, int]) -> bytes:
    """Return the header of the PROXY protocol for a client at ``host``."""
    if version == 1:
        return f"PROXY TCP4 {host} {to[0]} {port} {to[1]}\r\n".encode()
    addresses = bytes(map(int, host.split("."))) + bytes(map(int, to[0].split(".")))
    ports = port.to_bytes(2) + to[1].to_bytes(2)
    return b"\r\n\r\n\0\r\nQUIT\n" + bytes((0x21, 0x11)) + (12).to_bytes(2) + addresses + ports
