"""What goes wrong with brokers."""

from random import Random
from typing import TYPE_CHECKING

from tests.simulation import configuration
from tests.simulation.faults.kinds import end_later, kind, needs

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker
    from tests.simulation.scenario import Scenario


def _a_broker(scenario: "Scenario", random: Random) -> "Broker":
    return random.choice(list(scenario.cluster.brokers.values()))


@kind
def _broker_crash(scenario: "Scenario", random: Random) -> None:
    """A broker dies, perhaps with the unacknowledged end of its logs, and comes back."""
    broker = _a_broker(scenario, random)
    needs(broker.is_up)
    broker.crash(loses_tail=random.random() < 0.4)
    scenario.world.call_later(random.choice((50.0, 2_000.0, 15_000.0)), broker.start)


@kind
def _broker_moves(scenario: "Scenario", random: Random) -> None:
    """A broker of a cluster starts again at another host. At most one is not where the proxy's file says."""
    cluster = scenario.cluster
    away = [one for one in cluster.brokers.values() if one.has_moved_away]
    broker = away[0] if away else _a_broker(scenario, random)
    others = [one for one in cluster.brokers.values() if one.is_up and one is not broker]
    needs(scenario.setup.is_cluster and broker.is_up and others)
    broker.move()
    scenario.world.call_later(random.choice((300.0, 2_000.0)), broker.start)


@kind
def _broker_disk_lost(scenario: "Scenario", random: Random) -> None:
    """A broker dies, and comes back with an empty disk. It copies all that others lead from the beginning."""
    broker = _a_broker(scenario, random)
    needs(broker.is_up)
    broker.crash()
    scenario.tell(f"broker {broker.node_id} loses its disk")

    def start() -> None:
        scenario.cluster.empty_replicas(broker.node_id)
        broker.start()

    scenario.world.call_later(random.choice((600.0, 2_000.0)), start)


@kind
def _broker_stall(scenario: "Scenario", random: Random) -> None:
    """A broker reads and writes nothing for a while."""
    _a_broker(scenario, random).stall(random.choice((300.0, 3_000.0, 12_000.0, 40_000.0)))


@kind
def _broker_drops_connections(scenario: "Scenario", random: Random) -> None:
    """A broker closes all its connections and runs on."""
    broker = _a_broker(scenario, random)
    scenario.tell(f"broker {broker.node_id} closes its connections")
    broker.drop_connections(is_clean=random.random() < 0.5)


@kind
def _broker_cut_off(scenario: "Scenario", random: Random) -> None:
    """A firewall resets all connections to a broker, and drops the packets of new ones for a while."""
    broker = _a_broker(scenario, random)
    network = scenario.world.network
    network.unreachable[broker.host] = None
    scenario.tell(f"broker {broker.node_id} is cut off")
    for link in network.open_links():
        if broker.host in (link.ends[0].local[0], link.ends[1].local[0]):
            link.reset()
    scenario.world.call_later(random.choice((1_000.0, 15_000.0)), lambda: network.unreachable.pop(broker.host, None))


@kind
def _response_cut(scenario: "Scenario", random: Random) -> None:
    """A broker closes a connection in the middle of a response."""
    broker = _a_broker(scenario, random)
    scenario.tell(f"broker {broker.node_id} will close a connection within a response")
    broker.cuts_next_response = True


@kind
def _odd_response(scenario: "Scenario", random: Random) -> None:
    """A broker answers with the number of no request, and hangs up."""
    broker = _a_broker(scenario, random)
    broker.misnumbers_next_response = True


@kind
def _slow_broker_disk(scenario: "Scenario", random: Random) -> None:
    """A broker's disk takes up to four seconds for each append."""
    broker = _a_broker(scenario, random)
    broker.disk_ms = random.choice(((20.0, 200.0), (500.0, 4_000.0)))
    scenario.tell(f"the disk of broker {broker.node_id} takes {broker.disk_ms} ms")
    end_later(scenario, random, (3_000.0, 15_000.0), broker, "disk_ms", (0.0, 0.0))


@kind
def _broker_refuses(scenario: "Scenario", random: Random) -> None:
    """A broker answers a part of its requests with an error."""
    broker = _a_broker(scenario, random)
    broker.refusal_share = random.choice((0.1, 0.6))
    scenario.tell(f"broker {broker.node_id} refuses {broker.refusal_share:.0%} of its Produce requests")
    end_later(scenario, random, (1_000.0, 8_000.0), broker, "refusal_share", 0.0)


@kind
def _broker_throttles(scenario: "Scenario", random: Random) -> None:
    """A broker has quotas of its own, and says so in its responses."""
    broker = _a_broker(scenario, random)
    broker.throttle_share = random.choice((0.1, 0.8))
    scenario.tell(f"broker {broker.node_id} throttles {broker.throttle_share:.0%} of its responses")
    end_later(scenario, random, (1_000.0, 8_000.0), broker, "throttle_share", 0.0)


@kind
def _leader_move(scenario: "Scenario", random: Random) -> None:
    """Another in-sync replica leads a partition."""
    movable = [one for one in scenario.cluster.partitions.values() if len(one.isr) > 1]
    needs(movable)
    partition = random.choice(movable)
    others = [node_id for node_id in partition.isr if node_id != partition.leader]
    target = random.choice(others)
    scenario.tell(f"broker {target} leads {partition} from now on")
    scenario.cluster.move_leader(partition, target)


@kind
def _follower_hangs_up(scenario: "Scenario", random: Random) -> None:
    """Followers close their connections when their next fetches of something that lags are at the leaders."""
    followers = scenario.cluster.followers
    times = random.choice((1, 4))
    for follower in followers:
        follower.hangs_up = times
    scenario.tell("followers will hang up when their fetches are at the leaders")
    needs(followers)


@kind
def _topic_deleted(scenario: "Scenario", random: Random) -> None:
    """A topic is deleted, and comes back empty with another id."""
    name = random.choice(configuration.TOPICS)
    cluster = scenario.cluster
    needs(name in cluster.topics)
    count = len(cluster.topics[name].partitions)
    scenario.tell(f"topic {name} is deleted")
    cluster.delete_topic(name)
    scenario.world.call_later(random.choice((500.0, 5_000.0)), scenario.create_topic, name, count)
