"""What goes wrong with the network."""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.faults.kinds import end_later, kind, needs

if TYPE_CHECKING:
    from tests.simulation.network import Link
    from tests.simulation.scenario import Scenario

_SLOWEST_NS: Final = 1_000_000_000


def _a_link(scenario: "Scenario", random: Random) -> "Link":
    links = scenario.world.network.open_links()
    needs(links)
    return random.choice(links)


@kind
def _connection_reset(scenario: "Scenario", random: Random) -> None:
    """One connection ends with a reset, at whatever byte it is."""
    link = _a_link(scenario, random)
    scenario.tell(f"the connection {link.ends[0].local} to {link.ends[1].local} is reset")
    link.reset()


@kind
def _connection_cut(scenario: "Scenario", random: Random) -> None:
    """All bytes of a connection are lost from now on. Its ends find out by a time-out, or never."""
    link = _a_link(scenario, random)
    scenario.tell(f"all bytes between {link.ends[0].local} and {link.ends[1].local} are lost from now on")
    link.cut()


@kind
def _all_connections_reset(scenario: "Scenario", random: Random) -> None:
    """Every connection ends with a reset at the same moment."""
    links = scenario.world.network.open_links()
    scenario.tell(f"{len(links)} connections are reset")
    for link in links:
        link.reset()
    needs(links)


@kind
def _host_unreachable(scenario: "Scenario", random: Random) -> None:
    """All packets of one broker or client are lost for a while."""
    host = random.choice([broker.host for broker in scenario.cluster.brokers.values()] + ["10.0.2.1", "10.0.3.1"])
    network = scenario.world.network
    network.unreachable[host] = None
    time_ms = random.choice((500.0, 5_000.0, 20_000.0))
    scenario.tell(f"{host} is not reached for {time_ms:.0f} ms")
    for link in network.open_links():
        if host in (link.ends[0].local[0], link.ends[1].local[0]):
            link.cut()
    scenario.world.call_later(time_ms, lambda: network.unreachable.pop(host, None))


@kind
def _slow_network(scenario: "Scenario", random: Random) -> None:
    """New connections take up to a second each way, and open ones get slower."""
    network = scenario.world.network
    network.latency_ms = random.choice(((20.0, 80.0), (200.0, 900.0)))
    for link in network.open_links():
        # At most a second each way. What a closed connection has written would arrive too late otherwise.
        link.latency_ns = min(link.latency_ns * random.choice((1, 10, 100)), max(link.latency_ns, _SLOWEST_NS))
    scenario.tell(f"new connections take {network.latency_ms} ms each way")
    end_later(scenario, random, (2_000.0, 10_000.0), network, "latency_ms", scenario.usual_latency_ms)


@kind
def _tiny_windows(scenario: "Scenario", random: Random) -> None:
    """Half of all new connections have small buffers and small segments."""
    scenario.world.network.tiny_share = 0.5
    scenario.tell("half of all new connections have tiny windows")
