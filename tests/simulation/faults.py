"""Everything that goes wrong in a world, by kind. Each fault returns whether it could happen."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation import configuration
from tests.simulation.network import LATENCY_MS
from tests.simulation.process import ENOUGH_DESCRIPTORS
from tests.simulation.store_disk import AFTER, BEFORE, FULL

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker
    from tests.simulation.network import Link
    from tests.simulation.scenario import Scenario

Fault = Callable[["Scenario", Random], bool]
_SLOWEST_NS: Final = 1_000_000_000
KINDS: Final[dict[str, Fault]] = {}


def _kind(function: Fault) -> Fault:
    KINDS[function.__name__.strip("_").replace("_", " ")] = function
    return function


# -- the network --


def _a_link(scenario: "Scenario", random: Random) -> "Link | None":
    links = scenario.world.network.open_links()
    return random.choice(links) if links else None


@_kind
def _connection_reset(scenario: "Scenario", random: Random) -> bool:
    """One connection ends with a reset, at whatever byte it is."""
    link = _a_link(scenario, random)
    if link is None:
        return False
    scenario.tell(f"the connection {link.ends[0].local} to {link.ends[1].local} is reset")
    link.reset()
    return True


@_kind
def _connection_cut(scenario: "Scenario", random: Random) -> bool:
    """All bytes of a connection are lost from now on. Its ends find out by a time-out, or never."""
    link = _a_link(scenario, random)
    if link is None:
        return False
    scenario.tell(f"all bytes between {link.ends[0].local} and {link.ends[1].local} are lost from now on")
    link.cut()
    return True


@_kind
def _all_connections_reset(scenario: "Scenario", random: Random) -> bool:
    """Every connection ends with a reset at the same moment."""
    links = scenario.world.network.open_links()
    scenario.tell(f"{len(links)} connections are reset")
    for link in links:
        link.reset()
    return bool(links)


@_kind
def _host_unreachable(scenario: "Scenario", random: Random) -> bool:
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
    return True


@_kind
def _slow_network(scenario: "Scenario", random: Random) -> bool:
    """New connections take up to a second each way, and open ones get slower."""
    network = scenario.world.network
    network.latency_ms = random.choice(((20.0, 80.0), (200.0, 900.0)))
    for link in network.open_links():
        # At most a second each way. What a closed connection has written would arrive too late otherwise.
        link.latency_ns = min(link.latency_ns * random.choice((1, 10, 100)), max(link.latency_ns, _SLOWEST_NS))
    scenario.tell(f"new connections take {network.latency_ms} ms each way")

    def heal() -> None:
        network.latency_ms = LATENCY_MS  # also if another such fault has begun before this one

    scenario.world.call_later(random.choice((2_000.0, 10_000.0)), heal)
    return True


@_kind
def _tiny_windows(scenario: "Scenario", random: Random) -> bool:
    """Half of all new connections have small buffers and small segments."""
    scenario.world.network.tiny_share = 0.5
    scenario.tell("half of all new connections have tiny windows")
    return True


# -- brokers --


def _a_broker(scenario: "Scenario", random: Random) -> "Broker":
    return random.choice(list(scenario.cluster.brokers.values()))


@_kind
def _broker_crash(scenario: "Scenario", random: Random) -> bool:
    """A broker dies, perhaps with the unacknowledged end of its logs, and comes back."""
    broker = _a_broker(scenario, random)
    if not broker.is_up:
        return False
    broker.crash(loses_tail=random.random() < 0.4)
    scenario.world.call_later(random.choice((50.0, 2_000.0, 15_000.0)), broker.start)
    return True


@_kind
def _broker_disk_lost(scenario: "Scenario", random: Random) -> bool:
    """A broker dies, and comes back with an empty disk. It copies all that others lead from the beginning."""
    broker = _a_broker(scenario, random)
    if not broker.is_up:
        return False
    broker.crash()
    scenario.tell(f"broker {broker.node_id} loses its disk")

    def start() -> None:
        scenario.cluster.empty_replicas(broker.node_id)
        broker.start()

    scenario.world.call_later(random.choice((600.0, 2_000.0)), start)
    return True


@_kind
def _broker_stall(scenario: "Scenario", random: Random) -> bool:
    """A broker reads and writes nothing for a while."""
    _a_broker(scenario, random).stall(random.choice((300.0, 3_000.0, 12_000.0, 40_000.0)))
    return True


@_kind
def _broker_drops_connections(scenario: "Scenario", random: Random) -> bool:
    """A broker closes all its connections and runs on."""
    broker = _a_broker(scenario, random)
    scenario.tell(f"broker {broker.node_id} closes its connections")
    broker.drop_connections(is_clean=random.random() < 0.5)
    return True


@_kind
def _broker_cut_off(scenario: "Scenario", random: Random) -> bool:
    """A firewall resets all connections to a broker, and drops the packets of new ones for a while."""
    broker = _a_broker(scenario, random)
    network = scenario.world.network
    network.unreachable[broker.host] = None
    scenario.tell(f"broker {broker.node_id} is cut off")
    for link in network.open_links():
        if broker.host in (link.ends[0].local[0], link.ends[1].local[0]):
            link.reset()
    scenario.world.call_later(random.choice((1_000.0, 15_000.0)), lambda: network.unreachable.pop(broker.host, None))
    return True


@_kind
def _response_cut(scenario: "Scenario", random: Random) -> bool:
    """A broker closes a connection in the middle of a response."""
    broker = _a_broker(scenario, random)
    scenario.tell(f"broker {broker.node_id} will close a connection within a response")
    broker.cuts_next_response = True
    return True


@_kind
def _slow_broker_disk(scenario: "Scenario", random: Random) -> bool:
    """A broker's disk takes up to four seconds for each append."""
    broker = _a_broker(scenario, random)
    broker.disk_ms = random.choice(((20.0, 200.0), (500.0, 4_000.0)))
    scenario.tell(f"the disk of broker {broker.node_id} takes {broker.disk_ms} ms")

    def heal() -> None:
        broker.disk_ms = (0.0, 0.0)

    scenario.world.call_later(random.choice((3_000.0, 15_000.0)), heal)
    return True


@_kind
def _broker_refuses(scenario: "Scenario", random: Random) -> bool:
    """A broker answers a part of its requests with an error."""
    broker = _a_broker(scenario, random)
    broker.refusal_share = random.choice((0.1, 0.6))
    scenario.tell(f"broker {broker.node_id} refuses {broker.refusal_share:.0%} of its Produce requests")

    def heal() -> None:
        broker.refusal_share = 0.0

    scenario.world.call_later(random.choice((1_000.0, 8_000.0)), heal)
    return True


@_kind
def _broker_throttles(scenario: "Scenario", random: Random) -> bool:
    """A broker has quotas of its own, and says so in its responses."""
    broker = _a_broker(scenario, random)
    broker.throttle_share = random.choice((0.1, 0.8))
    scenario.tell(f"broker {broker.node_id} throttles {broker.throttle_share:.0%} of its responses")

    def heal() -> None:
        broker.throttle_share = 0.0

    scenario.world.call_later(random.choice((1_000.0, 8_000.0)), heal)
    return True


@_kind
def _leader_move(scenario: "Scenario", random: Random) -> bool:
    """Another in-sync replica leads a partition."""
    movable = [one for one in scenario.cluster.partitions.values() if len(one.isr) > 1]
    if not movable:
        return False
    partition = random.choice(movable)
    others = [node_id for node_id in partition.isr if node_id != partition.leader]
    target = random.choice(others)
    scenario.tell(f"broker {target} leads {partition} from now on")
    scenario.cluster.move_leader(partition, target)
    return True


@_kind
def _follower_hangs_up(scenario: "Scenario", random: Random) -> bool:
    """Followers close their connections when their next fetches of something that lags are at the leaders."""
    followers = scenario.cluster.followers
    times = random.choice((1, 4))
    for follower in followers:
        follower.hangs_up = times
    scenario.tell("followers will hang up when their fetches are at the leaders")
    return bool(followers)


@_kind
def _topic_deleted(scenario: "Scenario", random: Random) -> bool:
    """A topic is deleted, and comes back empty with another id."""
    name = random.choice(configuration.TOPICS)
    cluster = scenario.cluster
    if name not in cluster.topics:
        return False
    count = len(cluster.topics[name].partitions)
    scenario.tell(f"topic {name} is deleted")
    cluster.delete_topic(name)
    scenario.world.call_later(random.choice((500.0, 5_000.0)), scenario.create_topic, name, count)
    return True


# -- the proxy --


@_kind
def _proxy_killed(scenario: "Scenario", random: Random) -> bool:
    """The process of the proxy ends without a word, and another one starts."""
    if not scenario.proxy.is_running:
        return False
    scenario.tell("the proxy is killed")
    scenario.proxy.kill()
    return True


@_kind
def _power_lost(scenario: "Scenario", random: Random) -> bool:
    """The proxy's machine loses its power, and what its disk had not synced."""
    if not scenario.proxy.is_running:
        return False
    scenario.proxy.kill()
    lost = scenario.proxy.disk.lose_power()
    scenario.tell(f"the proxy's machine loses its power, and its disk {lost} bytes")
    return True


@_kind
def _proxy_restarted(scenario: "Scenario", random: Random) -> bool:
    """The proxy gets SIGTERM, drains, and starts again."""
    if not scenario.proxy.is_running or scenario.proxy.server is None:
        return False
    scenario.tell("the proxy is restarted in order")
    scenario.proxy.signal_stop()
    if random.random() < 0.2:
        scenario.world.call_later(random.choice((1.0, 300.0)), scenario.proxy.signal_stop)
    return True


@_kind
def _proxy_paused(scenario: "Scenario", random: Random) -> bool:
    """The proxy's process stands still, as in a migration of its machine."""
    if not scenario.proxy.is_running:
        return False
    time_ms = random.choice((50.0, 800.0, 5_000.0))
    scenario.tell(f"the proxy's process stands still for {time_ms:.0f} ms")
    scenario.proxy.process.loop.busy_until_ns = scenario.world.clock.now_ns + int(time_ms * 1_000_000)
    return True


@_kind
def _no_descriptors(scenario: "Scenario", random: Random) -> bool:
    """The proxy has no free descriptor for a while."""
    if not scenario.proxy.is_running:
        return False
    process = scenario.proxy.process
    process.most_descriptors = len(process.descriptors)
    scenario.tell("the proxy has no free descriptor")

    def heal() -> None:
        process.most_descriptors = ENOUGH_DESCRIPTORS

    scenario.world.call_later(random.choice((500.0, 4_000.0)), heal)
    return True


# -- the operator --


@_kind
def _quotas_changed(scenario: "Scenario", random: Random) -> bool:
    """The operator writes other quotas into the file."""
    settings = dict(scenario.proxy.settings)
    settings["quotas"] = configuration.draw_quotas(random, has_login=scenario.setup.has_login)
    scenario.write_settings(settings, "other quotas")
    return True


@_kind
def _settings_changed(scenario: "Scenario", random: Random) -> bool:
    """The operator writes other settings of throttling into the file."""
    settings = dict(scenario.proxy.settings)
    settings |= configuration.draw_throttling(random)
    scenario.write_settings(settings, f"{settings['enforcement']}, {settings['shaping']}")
    return True


@_kind
def _replication_changed(scenario: "Scenario", random: Random) -> bool:
    """The operator writes other limits on replication into the file, or removes them."""
    if scenario.setup.replication < 2:
        return False
    settings = dict(scenario.proxy.settings)
    if settings.pop("replication", None) is None or random.random() < 0.8:
        settings["replication"] = configuration.draw_replication(random)
    scenario.write_settings(settings, f"replication {settings.get('replication')}")
    return True


@_kind
def _queue_switched(scenario: "Scenario", random: Random) -> bool:
    """The operator switches the fair call queue on or off."""
    settings: dict[str, Any] = dict(scenario.proxy.settings)
    if settings.pop("fair_call_queue", None) is None:
        settings["fair_call_queue"] = configuration.draw_queue(random)
    scenario.write_settings(settings, f"fair call queue {'on' if 'fair_call_queue' in settings else 'off'}")
    return True


@_kind
def _file_broken(scenario: "Scenario", random: Random) -> bool:
    """The file is half-written or garbage, and whole again later. A broken file changes nothing."""
    proxy = scenario.proxy
    text = proxy.path.read_text(encoding="utf-8")
    scenario.tell("the configuration file is half-written")
    proxy.write_text(random.choice((text[: len(text) // 2], "", "listeners: 7", "\x00", "listeners: [")))

    def heal() -> None:
        proxy.write(proxy.settings)

    scenario.world.call_later(random.choice((100.0, 1_500.0)), heal)
    return True


@_kind
def _wall_clock_set(scenario: "Scenario", random: Random) -> bool:
    """The Unix clock is set forward or back."""
    by_ms = random.choice((-3_600_000.0, -5_000.0, -30.0, 40.0, 7_000.0, 86_400_000.0))
    scenario.tell(f"the Unix clock is set by {by_ms:.0f} ms")
    scenario.world.clock.step_wall(by_ms)
    return True


@_kind
def _disk_full(scenario: "Scenario", random: Random) -> bool:
    """The proxy's disk is full for a while."""
    disk = scenario.proxy.disk
    disk.is_full = True
    scenario.tell("the proxy's disk is full")

    def heal() -> None:
        disk.is_full = False

    scenario.world.call_later(random.choice((1_000.0, 10_000.0)), heal)
    return True


@_kind
def _disk_faulty(scenario: "Scenario", random: Random) -> bool:
    """The proxy's disk cannot sync for a while."""
    disk = scenario.proxy.disk
    disk.fails_to_sync = True
    scenario.tell("the proxy's disk cannot sync")

    def heal() -> None:
        disk.fails_to_sync = False

    scenario.world.call_later(random.choice((1_000.0, 10_000.0)), heal)
    return True


def _store_fails(scenario: "Scenario", random: Random, fault: str) -> None:
    store = scenario.proxy.disk.store
    store.fault, store.failures_left = fault, random.choice((1, 2, 3, 1_000))
    scenario.world.call_later(random.choice((1_000.0, 10_000.0)), store.heal)


@_kind
def _store_full(scenario: "Scenario", random: Random) -> bool:
    if not scenario.setup.has_store:
        return False
    scenario.tell("the disk of the quota store is full")
    _store_fails(scenario, random, FULL)
    return True


@_kind
def _store_faulty(scenario: "Scenario", random: Random) -> bool:
    """Writes fail before they have done anything, or when all is written and cannot be synced."""
    if not scenario.setup.has_store:
        return False
    scenario.tell("the disk of the quota store fails")
    _store_fails(scenario, random, random.choice((BEFORE, AFTER, AFTER)))
    return True


@_kind
def _store_slow(scenario: "Scenario", random: Random) -> bool:
    if not scenario.setup.has_store:
        return False
    store = scenario.proxy.disk.store
    store.slow_ms = random.choice((2_000.0, 12_000.0, 30_000.0))
    scenario.tell(f"the disk of the quota store takes up to {store.slow_ms:.0f} ms")
    scenario.world.call_later(random.choice((1_000.0, 10_000.0)), store.heal)
    return True
