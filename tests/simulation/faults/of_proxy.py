"""What goes wrong with the process of the proxy, its operator, its clock and its disks."""

from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation import configuration
from tests.simulation.faults.kinds import end_later, kind, needs
from tests.simulation.process import ENOUGH_DESCRIPTORS
from tests.simulation.store_disk import AFTER, BEFORE, FULL
from tests.simulation.stored_quotas import entity_of

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario


@kind
def _proxy_killed(scenario: "Scenario", random: Random) -> None:
    """The process of the proxy ends without a word, and another one starts."""
    needs(scenario.proxy.is_running)
    scenario.tell("the proxy is killed")
    scenario.proxy.kill()


@kind
def _power_lost(scenario: "Scenario", random: Random) -> None:
    """The proxy's machine loses its power, and what its disk had not synced."""
    needs(scenario.proxy.is_running)
    scenario.proxy.kill()
    lost = scenario.proxy.disk.lose_power()
    scenario.tell(f"the proxy's machine loses its power, and its disk {lost} bytes")


@kind
def _proxy_restarted(scenario: "Scenario", random: Random) -> None:
    """The proxy gets SIGTERM, drains, and starts again."""
    needs(scenario.proxy.is_running and scenario.proxy.server)
    scenario.tell("the proxy is restarted in order")
    scenario.proxy.signal_stop()
    if random.random() < 0.2:
        scenario.world.call_later(random.choice((1.0, 300.0)), scenario.proxy.signal_stop)


@kind
def _proxy_paused(scenario: "Scenario", random: Random) -> None:
    """The proxy's process stands still, as in a migration of its machine."""
    needs(scenario.proxy.is_running)
    time_ms = random.choice((50.0, 800.0, 5_000.0))
    scenario.tell(f"the proxy's process stands still for {time_ms:.0f} ms")
    scenario.proxy.process.loop.busy_until_ns = scenario.world.clock.now_ns + int(time_ms * 1_000_000)


@kind
def _no_descriptors(scenario: "Scenario", random: Random) -> None:
    """The proxy has no free descriptor for a while."""
    needs(scenario.proxy.is_running)
    process = scenario.proxy.process
    process.most_descriptors = len(process.descriptors)
    scenario.tell("the proxy has no free descriptor")
    end_later(scenario, random, (500.0, 4_000.0), process, "most_descriptors", ENOUGH_DESCRIPTORS)


@kind
def _odd_dial(scenario: "Scenario", random: Random) -> None:
    """The next dial to a broker ends with an exception that nobody expects."""
    needs(scenario.proxy.is_running)
    scenario.proxy.process.odd_dials += 1
    scenario.tell("the proxy's next dial ends with an exception that nobody expects")


# -- the operator --


_ABSENT: Final = "nobody"
_LOW_RATE: Final = 2_048.0  # below it debts of before would take minutes


def _lowered(rule: dict[str, Any]) -> dict[str, Any]:
    return {
        key: min(value, max(_LOW_RATE, value / 4)) if key.endswith("_byte_rate") else value
        for key, value in rule.items()
    }


@kind
def _quotas_changed(scenario: "Scenario", random: Random) -> None:
    """The operator writes other quotas into the file, or lowers those that there are."""
    settings = dict(scenario.proxy.settings)
    what = "other quotas"
    if random.random() < 0.4:
        settings["quotas"] = [_lowered(rule) for rule in settings["quotas"]]
        what = "a quarter of the byte rates"
    else:
        settings["quotas"] = configuration.draw_quotas(random, has_login=scenario.setup.has_login)
    scenario.write_settings(settings, what)


@kind
def _quotas_of_others_changed(scenario: "Scenario", random: Random) -> None:
    """The operator writes a quota of somebody into the file who is not there. All others owe what they owed."""
    settings = dict(scenario.proxy.settings)
    others = [one for one in settings["quotas"] if one.get("client-id") != _ABSENT]
    rule = {"client-id": _ABSENT, "producer_byte_rate": random.choice((2_048, 20_480)) + random.randrange(100)}
    settings["quotas"] = [*others, rule]
    scenario.write_settings(settings, "a quota of somebody who is not there")


@kind
def _file_takes_over(scenario: "Scenario", random: Random) -> None:
    """The operator writes a quota into the file that administrators have set as well. The proxy may be killed then."""
    stored = list(scenario.stored.registers)
    needs(stored)
    of_bytes = [one for one in stored if one[1] == "producer_byte_rate"]  # the clients of most worlds notice it
    entity, key = random.choice(of_bytes or stored)
    rule = {part: "<default>" if name is None else name for part, name in entity}
    settings = dict(scenario.proxy.settings)
    others = [one for one in settings["quotas"] if entity_of(one) != entity]
    settings["quotas"] = [*others, rule | {key: random.choice(configuration.STORED[key])}]
    scenario.write_settings(settings, f"{key} of {rule}, which is stored, too")

    def kill() -> None:
        if scenario.proxy.is_running:
            scenario.fired["proxy killed"] += 1
            _proxy_killed(scenario, random)

    if random.random() < 0.7:
        scenario.world.call_later(random.choice((0.0, 1_000.0, 2_500.0)), kill)


@kind
def _settings_changed(scenario: "Scenario", random: Random) -> None:
    """The operator writes other settings of throttling into the file."""
    settings = dict(scenario.proxy.settings)
    settings |= configuration.draw_throttling(random)
    scenario.write_settings(settings, f"{settings['enforcement']}, {settings['shaping']}")


@kind
def _replication_changed(scenario: "Scenario", random: Random) -> None:
    """The operator writes other limits on replication into the file, or removes them."""
    needs(scenario.setup.replication > 1)
    settings = dict(scenario.proxy.settings)
    if settings.pop("replication", None) is None or random.random() < 0.8:
        settings["replication"] = configuration.draw_replication(random)
    scenario.write_settings(settings, f"replication {settings.get('replication')}")


@kind
def _queue_switched(scenario: "Scenario", random: Random) -> None:
    """The operator switches the fair call queue on or off."""
    settings: dict[str, Any] = dict(scenario.proxy.settings)
    if settings.pop("fair_call_queue", None) is None:
        settings["fair_call_queue"] = configuration.draw_queue(random)
    scenario.write_settings(settings, f"fair call queue {'on' if 'fair_call_queue' in settings else 'off'}")


@kind
def _file_broken(scenario: "Scenario", random: Random) -> None:
    """The file is half-written or garbage, and whole again later. A broken file changes nothing."""
    proxy = scenario.proxy
    text = proxy.path.read_text(encoding="utf-8")
    scenario.tell("the configuration file is half-written")
    proxy.write_text(random.choice((text[: len(text) // 2], "", "listeners: 7", "\x00", "listeners: [")))

    def heal() -> None:
        proxy.write(proxy.settings)

    scenario.world.call_later(random.choice((100.0, 1_500.0)), heal)


@kind
def _wall_clock_set(scenario: "Scenario", random: Random) -> None:
    """The Unix clock is set forward or back."""
    by_ms = random.choice((-3_600_000.0, -5_000.0, -30.0, 40.0, 7_000.0, 86_400_000.0))
    scenario.tell(f"the Unix clock is set by {by_ms:.0f} ms")
    scenario.world.clock.step_wall(by_ms)


@kind
def _disk_full(scenario: "Scenario", random: Random) -> None:
    """The proxy's disk is full for a while."""
    disk = scenario.proxy.disk
    disk.is_full = True
    scenario.tell("the proxy's disk is full")
    end_later(scenario, random, (1_000.0, 10_000.0), disk, "is_full", False)


@kind
def _disk_faulty(scenario: "Scenario", random: Random) -> None:
    """The proxy's disk cannot sync for a while."""
    disk = scenario.proxy.disk
    disk.fails_to_sync = True
    scenario.tell("the proxy's disk cannot sync")
    end_later(scenario, random, (1_000.0, 10_000.0), disk, "fails_to_sync", False)


def _store_fails(scenario: "Scenario", random: Random, fault: str) -> None:
    store = scenario.proxy.disk.store
    store.fault, store.failures_left = fault, random.choice((1, 2, 3, 1_000))
    scenario.world.call_later(random.choice((1_000.0, 10_000.0)), store.heal)


@kind
def _store_full(scenario: "Scenario", random: Random) -> None:
    """Writes fail, because the disk of the quota store is full."""
    needs(scenario.setup.has_store)
    scenario.tell("the disk of the quota store is full")
    _store_fails(scenario, random, FULL)


@kind
def _store_faulty(scenario: "Scenario", random: Random) -> None:
    """Writes fail before they have done anything, or when all is written and cannot be synced."""
    needs(scenario.setup.has_store)
    scenario.tell("the disk of the quota store fails")
    _store_fails(scenario, random, random.choice((BEFORE, AFTER, AFTER)))


@kind
def _store_slow(scenario: "Scenario", random: Random) -> None:
    """Writes take seconds. Some then fail."""
    needs(scenario.setup.has_store)
    store = scenario.proxy.disk.store
    store.slow_ms = random.choice((2_000.0, 12_000.0, 30_000.0))
    scenario.tell(f"the disk of the quota store takes up to {store.slow_ms:.0f} ms")
    heals_ms = random.choice((1_000.0, 10_000.0))
    if random.random() < 0.4:
        store.fault, store.failures_left = AFTER, 1
        heals_ms = store.slow_ms
    scenario.world.call_later(heals_ms, store.heal)
