"""One run of the simulated world, from its plan: brokers, a proxy, actors and faults, and their orderly end."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka_quota_proxy.proxy.runtime import isolation
from tests.simulation import actors, configuration, leftovers
from tests.simulation.brokers.cluster import Cluster
from tests.simulation.brokers.profiles import LISTENERS, LISTENERS_WITH_LOGIN, PROFILES
from tests.simulation.check_settings import check_settings
from tests.simulation.checks.all_checks import ALL
from tests.simulation.checks.broker_names import BrokerNames
from tests.simulation.checks.check import Check
from tests.simulation.faults import KINDS
from tests.simulation.faults.kinds import CannotHappenError
from tests.simulation.install import current
from tests.simulation.network import LATENCY_MS
from tests.simulation.plan import Plan
from tests.simulation.proxy import Proxy
from tests.simulation.stored_quotas import StoredQuotas
from tests.simulation.themes import theme_of
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.actors import Actor

_NS_PER_MS: Final = 1_000_000
_BEGIN_MS: Final = 1_000.0  # brokers and the proxy start before the clients
# How long clients may take to end after a run, and the proxy to stop.
_CLIENTS_END_MS: Final = 3_600_000.0  # who waits for too long is found by then
_PROXY_ENDS_MS: Final = 90_000.0
_COPY_MS: Final = 12_000.0
_LINGER_MS: Final = 35_000.0
_STEP_MS: Final = 500.0
LOOK_MS: Final = 500.0  # how often the checks look at what waits
_SLICE_MS: Final = 100.0
# Of batches that followers copy. The large ones do not fit into the first look at a partition, of 64 KiB.
_LARGE_SIZES: Final = (1_000, 4_000, 100_000)
# What a partition of a full topic has at first. The last is more than consumers at their limit read in most worlds.
_FULL_BYTES: Final = (30_000, 300_000, 1_500_000, 1_500_000)
_APPLY_MS: Final = 2_500.0  # a changed file is in force after this


class Scenario:
    """The world of one plan.

    Attributes:
        broker_names: Whether the proxy may take the two names of a broker for two brokers.
        stored: What administrators have stored, and so which quotas can be in force.
        fired: How often each kind of fault happened.
        states: What the world has been through, for the coverage.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.world = world = World(plan.seed)
        current.enter(world)
        self.fired = dict.fromkeys(KINDS, 0)
        self.states: set[str] = set()
        self._is_ending = False
        self.theme = theme_of(plan.seed)
        self.usual_latency_ms = world.network.latency_ms = self.theme.latency_ms or LATENCY_MS
        self.setup = setup = configuration.draw(world.random_of("configuration"), folder, self.theme)
        for listener in setup.settings["listeners"]:
            listener["relay"] = "python" if plan.relay == "python" else "auto"
        world.settings = check_settings(setup.settings, memory_divisor=self.theme.memory_divisor)
        self.cluster = self._make_cluster()
        self.proxy = Proxy(world, configuration.PROXY_HOST, folder, setup.settings)
        self.proxy.memory_divisor = self.theme.memory_divisor
        world.scenario = self
        self.actors: dict[str, Actor] = {
            actor.name: actors.KINDS[actor.kind](self, actor.name, world.random_of(f"make {actor.name}"))
            for actor in plan.actors
        }
        self.broker_names = BrokerNames(world)
        checks = tuple(check(world) for check in ALL)
        self.stored = StoredQuotas(world, has_store=setup.has_store, others=checks)
        world.ledger.checks = (self.stored, self.broker_names, *checks)
        world.scheduler.on_step = self._after_step
        self._next_look_ms = 0.0
        self._steppers = [check.step for check in world.ledger.checks if type(check).step is not Check.step]
        isolation.internal_errors.clear()
        isolation._logged.clear()

    def _make_cluster(self) -> Cluster:
        setup = self.setup
        cluster = Cluster(
            self.world,
            range(1, setup.brokers + 1),
            listeners=LISTENERS_WITH_LOGIN if setup.has_login else LISTENERS,
            versions=PROFILES[setup.broker_version],
        )
        cluster.users = dict.fromkeys((*configuration.USERS, configuration.ADMIN), configuration.PASSWORD)
        for node_id in cluster.brokers:
            cluster.advertised[node_id, "client"] = setup.advertised(node_id)
        if setup.replication > 1:
            cluster.route = setup.inter_broker_route
        cluster.start()
        for broker in cluster.brokers.values():
            broker.disk_ms = self.theme.disk_ms
        for name in configuration.TOPICS:
            cluster.create_topic(name, self.world.random.randint(1, 3), replication=setup.replication)
        if self.theme.has_newcomers:
            random = self.world.random_of("newcomers")
            newcomers = random.sample(list(cluster.brokers), random.randint(1, setup.brokers - 1))
            old_sizes = random.choice((self.theme.sizes, _LARGE_SIZES, _LARGE_SIZES))
            for partition in cluster.partitions.values():
                sizes = random.choices(old_sizes, k=random.randint(2, 20))
                cluster.begin_with(partition, sizes, newcomers=newcomers if random.random() < 0.7 else ())
        if self.theme.full_sizes:
            full_sizes = self.world.random_of("full topic").choice(self.theme.full_sizes)
            random = self.world.random_of("batches of the full topic")
            full_bytes = random.choice(_FULL_BYTES)
            for (topic, _), partition in cluster.partitions.items():
                if topic == configuration.TOPICS[0]:
                    number = full_bytes * len(full_sizes) // sum(full_sizes)
                    cluster.begin_with(partition, random.choices(full_sizes, k=number), newcomers=())
        random = self.world.random_of("late broker")
        if setup.brokers > 1 and random.random() < self.theme.late_share:
            late = random.choice(list(cluster.brokers.values()))
            self.fired["broker crash"] += 1
            late.crash()
            self.world.call_later(random.choice((5_000.0, 15_000.0)), late.start)
            self.world.call_later(random.uniform(1.5, 3.5) * _BEGIN_MS, self._happen, "early kill", "proxy killed")
        return cluster

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic that a fault has deleted."""
        if name not in self.cluster.topics:
            self.cluster.create_topic(name, partitions, replication=self.setup.replication)

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.world.story.tell(line)

    def write_settings(self, settings: Mapping[str, Any], what: str) -> None:
        """Replace the proxy's file. The proxy finds that by itself."""
        self.tell(f"the file is changed: {what}")
        self.proxy.write(settings)

    def _applied(self, settings: Mapping[str, Any]) -> None:
        self.tell("a file is in force")
        self.world.settings = check_settings(settings, memory_divisor=self.theme.memory_divisor)
        self.stored.file_applied(settings["quotas"])

    # -- the run --

    def run(self) -> None:
        """Run the world from its start to its end.

        Raises:
            Violation: If a promise was broken.
        """
        world, plan = self.world, self.plan
        self.tell(f"{self.setup}")
        self.proxy.on_applied = self._applied
        self.proxy.start()
        start_ns = world.clock.now_ns
        for name, actor in self.actors.items():
            random = world.random_of(f"start {name}")
            world.call_later(_BEGIN_MS + random.uniform(0, plan.horizon_ms / 8), self._begin, name, actor)
        for fault in plan.faults:
            world.call_later(_BEGIN_MS + fault.at_ms, self._happen, fault.name, fault.kind)
        end_ns = start_ns + int((_BEGIN_MS + plan.horizon_ms) * _NS_PER_MS)
        while world.clock.now_ns < end_ns and world.scheduler.steps < plan.most_steps:
            world.scheduler.run_until(min(end_ns, world.clock.now_ns + int(_SLICE_MS * _NS_PER_MS)))
        self._end()

    def _begin(self, name: str, actor: "Actor") -> None:
        if not self._is_ending:  # a busy world ends before everybody has come
            self.tell(f"{name} starts")
            actor.start()

    def _happen(self, name: str, kind: str) -> None:
        if self._is_ending:  # a busy world ends before everything has happened
            return
        self.fired[kind] += 1  # before it happens, because the checks look at it meanwhile
        try:
            KINDS[kind](self, self.world.random_of(name))
        except CannotHappenError:
            self.fired[kind] -= 1

    def _end(self) -> None:
        """Let the clients go, stop the proxy, and see that nothing is left."""
        world = self.world
        self._is_ending = True
        self.tell("the end begins")
        self._heal()
        for check in world.ledger.checks:
            check.faults_ended()
        for actor in self.actors.values():
            actor.stop()
        self._wait(lambda: all(actor.is_done for actor in self.actors.values()), _CLIENTS_END_MS, "clients")
        if self.theme.has_newcomers:
            self._let_followers_copy()
        self.cluster.stop_followers()
        self._start_proxy()
        if self.stored.registers:
            self._audit()
        world.scheduler.run_until(world.clock.now_ns + int(_APPLY_MS * _NS_PER_MS))
        self.tell("the proxy stops")
        self.proxy.stop()
        self._wait(lambda: not self.proxy.is_running, _PROXY_ENDS_MS, "stop")
        # What was written to slow peers is still sent. The proxy gives it up after 30 s (TCP_USER_TIMEOUT).
        world.scheduler.run_until(world.clock.now_ns + int(_LINGER_MS * _NS_PER_MS))
        self._check_nothing_is_left()
        self._note_states()
        for check in world.ledger.checks:
            check.end()

    def _let_followers_copy(self) -> None:
        """Let the followers go on for a while, because a throttled one needs longer than most worlds last."""
        until_ns = self.world.clock.now_ns + int(_COPY_MS * _NS_PER_MS)
        while self.world.clock.now_ns < until_ns and not self.cluster.is_in_sync:
            self.world.scheduler.run_until(self.world.clock.now_ns + int(_STEP_MS * _NS_PER_MS))

    def _start_proxy(self) -> None:
        self.proxy.start()
        self._wait(lambda: self.proxy.server is not None and self.proxy.server.is_listening, _PROXY_ENDS_MS, "start")

    def _audit(self) -> None:
        """Let an administrator look at all quotas once more, in half of the worlds after a last crash."""
        random = self.world.random_of("audit")
        self.proxy.disk.store.heal()
        last = random.choice(("proxy killed", "power lost", "", ""))
        if last:
            self.fired[last] += 1
            with suppress(CannotHappenError):
                KINDS[last](self, random)
            self._start_proxy()
        auditor = actors.auditor(self, "auditor", random)
        self.actors["auditor"] = auditor
        auditor.start()
        self._wait(lambda: any(one.error_code == 0 for one in auditor.operations), _CLIENTS_END_MS, "the last look")
        auditor.stop()
        self._wait(lambda: auditor.is_done, _CLIENTS_END_MS, "auditor")

    def _heal(self) -> None:
        self.world.network.unreachable.clear()
        self.world.network.latency_ms = self.usual_latency_ms
        self.proxy.disk.is_full = self.proxy.disk.fails_to_sync = False
        self.proxy.disk.store.heal()
        self.proxy.process.odd_dials = 0
        self.cluster.heal()

    def _wait(self, is_so: Any, most_ms: float, what: str) -> None:
        world = self.world
        until_ns = world.clock.now_ns + int(most_ms * _NS_PER_MS)
        while not is_so():
            if world.clock.now_ns >= until_ns:
                late = [name for name, actor in self.actors.items() if not actor.is_done]
                world.fail("everything ends", f"{what}: not within {most_ms:.0f} ms; {late}")
            world.scheduler.run_until(world.clock.now_ns + int(_STEP_MS * _NS_PER_MS))

    def _note_states(self) -> None:
        """Note what the world has been through, as a measure of what the seeds reach."""
        server = self.proxy.server
        if server is not None:
            for listener in server.listeners:
                self.states.update(f"disconnect: {cause}" for cause in listener.counters.disconnects)
                self.states.update(f"protocol error: {reason}" for reason in listener.counters.protocol_errors)
        for exchange in self.world.ledger.exchanges.values():
            self.states.add(f"api {exchange.api_key} v{exchange.api_version}")
            if exchange.throttle_ms:
                self.states.add(f"api {exchange.api_key} throttled")

    def _check_nothing_is_left(self) -> None:
        left = self.leftovers()
        if left:
            self.world.fail("everything is given back", "; ".join(left))

    def leftovers(self) -> list[str]:
        """Return what the stopped proxy still has."""
        server = self.proxy.server
        of_server = () if server is None else leftovers.of_server(server)
        return [*leftovers.of_process(self.proxy.process), *of_server]

    def _after_step(self) -> None:
        errors = isolation.internal_errors
        if errors and sum(errors.values()) > self.world.odd_errors and self.world.scheduler.violation is None:
            self.world.fail("no internal error", f"{errors}")
        now_ms = self.world.clock.now_ms
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_MS
            for step in self._steppers:
                step()


class StoryHandler(logging.Handler):
    """Adds the warnings of the proxy to the story of the world that runs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record, with its traceback if it has one."""
        if current.world is not None:
            text = self.format(record)
            current.world.story.tell(f"proxy: {text}")
