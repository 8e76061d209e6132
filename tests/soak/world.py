"""Runs a soak: three brokers, the proxy, the clients, and the events of a plan. Returns what was seen."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.end_to_end.support import frames
from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic, messages
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import HarnessError, free_port, free_ports, scratch, wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quota_fleet import Admin
from tests.soak.checks import Change, Life, Span, tracebacks
from tests.soak.clients import CLIENTS, LIBRARIES, VISITOR_RATE, Client, settings
from tests.soak.plan import WHOLE_MINUTES, Event, Kind, Plan
from tests.soak.programs import Program, start, start_visitors
from tests.soak.records import Notes
from tests.soak.watches import Leaders, ProxySampler, ShortConnections

# Kafka would move leaders back to their first replicas every five minutes. Clients then send or read again what was on
# its way, as after a failure.
_BROKERS: Final = {"auto.leader.rebalance.enable": "false"}
# No record may be lost when one broker is killed. The time of appending tells which duplicates follow a failure.
_TOPIC: Final = {"min.insync.replicas": "2", "message.timestamp.type": "LogAppendTime"}
_PORTS: Final = 10
_TICK_S: Final = 0.2
_PROGRESS_EVERY_S: Final = 30
_CLIENTS_END_S: Final = 240
_BROKER_RETURNS_S: Final = 90
# Until replicas have caught up and clients have found the broker again.
_AFTER_AWAY_S: Final = 30
# A broker is killed only while all replicas are in sync, or else after this time.
_POSTPONED_S: Final = 5
_WARM_UP_S: Final = 60
_LISTENER: Final = "clients"


@dataclass(slots=True)
class Topic:
    """What a topic has at the end, read from the brokers."""

    notes: Notes
    numbers: list[tuple[int, float]]  # with the Unix time of appending


@dataclass(slots=True)
class Evidence:
    """What was seen in a soak. ``started_s`` is the Unix time from which all others count."""

    started_s: float = 0.0
    lives: list[Life] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    changes: dict[str, list[Change]] = field(default_factory=dict)
    restarts: list[Span] = field(default_factory=list)
    brokers_away: list[Span] = field(default_factory=list)
    moves: dict[str, list[Span]] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)  # by library
    programs: dict[str, Program] = field(default_factory=dict)
    throttled: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[Span]:
        return [*self.restarts, *self.brokers_away]


class World:
    """A soak that runs. ``say`` gets its lines of progress."""

    def __init__(self, plan: Plan, *, minutes: float, say: Callable[[str], None]) -> None:
        self.evidence = Evidence()
        self._plan = plan
        self._end_s = minutes * 60
        self._warm_up_s = _WARM_UP_S if minutes >= WHOLE_MINUTES else 0.0
        self._say = say
        self._limits = dict(plan.limits)
        self._visitor_rate = VISITOR_RATE
        self._returning: tuple[int, float] | None = None  # a broker's index, and when it was killed
        self._restart_broker_s = math.inf
        self._left = list(plan.events)
        self._ended: set[str] = set()

    def run(self) -> Evidence:
        """Run the plan to its end, stop everything, and read all topics."""
        with contextlib.ExitStack() as stack:
            self._directory = stack.enter_context(scratch("soak"))
            self._kafka = stack.enter_context(Kafka(KAFKA_4, nodes=3, proxied=(), config=_BROKERS))
            self._topics = {library: create_topic(self._kafka, config=_TOPIC) for library in LIBRARIES}
            self._visitors_topic = create_topic(self._kafka, partitions=3, config=_TOPIC)
            self._proxy = stack.enter_context(self._make_proxy())
            self._store_limits()
            self._sampler = ProxySampler(self._proxy, self._admin_port, self._ports)
            self._leaders = Leaders(self._kafka, list(self._topics.values()))
            self.evidence.started_s = time.time()
            with self._sampler, self._leaders:
                self._begin_life()
                self._start_programs()
                self._run_events()
                self._end_programs()
                self._end_proxy()
            self.evidence.throttled = self._sampler.throttled
            self.evidence.moves = {library: self._leaders.moves[topic] for library, topic in self._topics.items()}
            self._say("reading all topics from the brokers")
            self.evidence.topics = {library: _read(self._kafka, topic) for library, topic in self._topics.items()}
        return self.evidence

    # --- the start

    def _make_proxy(self) -> Proxy:
        first = free_ports(_PORTS + 1)
        self._ports = range(first, first + _PORTS + 1)
        self._listener = {
            "name": _LISTENER,
            "bind": f"127.0.0.1:{first}",
            "bootstrap_servers": self._kafka.addresses(DIRECT),
            "broker_ports": f"{first + 1}-{first + _PORTS}",
        }
        self._admin_port = free_port()
        return Proxy({**self._settings(), "admin": {"bind": f"127.0.0.1:{self._admin_port}"}})

    def _settings(self) -> dict[str, Any]:
        store = str(self._directory / "store")
        return settings(self._limits, visitor_rate=self._visitor_rate, listener=self._listener, store=store)

    def _store_limits(self) -> None:
        """Set the first limits of the store, and note all first limits."""
        for client in CLIENTS:
            if not client.in_file:
                self._alter(client)
            self._note(client, time.time())

    def _start_programs(self) -> None:
        address = self._proxy.address(_LISTENER)
        for client in CLIENTS:
            self.evidence.programs[client.name] = start(
                client.library, client.role, address=address, topic=self._topics[client.library],
                client_id=client.name, stop=self._stop_file(client.role), directory=self._directory,
                classpath=self._kafka.classpath,
            )  # fmt: skip
        self.evidence.programs["visitors"] = start_visitors(
            address=address, topic=self._visitors_topic, stop=self._stop_file("visit"), directory=self._directory
        )

    def _stop_file(self, role: str) -> Path:
        return self._directory / f"stop-{role}"

    # --- events

    def _run_events(self) -> None:
        progress_s = _PROGRESS_EVERY_S
        while (now_s := self._now()) < self._end_s:
            if self._left and self._left[0].at_s <= now_s:
                self._do(self._left.pop(0))
            self._bring_broker_back()
            self._listen()
            if now_s >= progress_s:
                progress_s += _PROGRESS_EVERY_S
                self._say(self._progress())
            time.sleep(_TICK_S)
        self._restart_broker_s = min(self._restart_broker_s, self._now())
        while self._returning is not None:
            self._bring_broker_back()
            time.sleep(_TICK_S)

    def _now(self) -> float:
        return time.time() - self.evidence.started_s

    def _do(self, event: Event) -> None:
        try:
            {
                Kind.RELOAD: self._reload,
                Kind.ALTER: self._alter_limit,
                Kind.KILL_BROKER: self._kill_broker,
                Kind.KILL_PROXY: self._restart_proxy,
                Kind.STOP_PROXY: self._restart_proxy,
            }[event.kind](event)
        except (HarnessError, OSError, EOFError, AssertionError) as error:
            self._find(f"{event.kind.value} failed: {error!r}")
            if not self._proxy.process.is_running:
                raise

    def _reload(self, event: Event) -> None:
        asked_s = time.time()
        if event.client:
            self._limits[event.client] = event.limit
        else:
            self._visitor_rate = event.limit
        if not self._proxy.reload(self._settings()):
            self._find("a reload was refused")
        if event.client:
            self._note(_client(event.client), asked_s)
        self._happened(f"reload: {event.client or 'visitors'} {event.limit / 1024:.0f} KiB/s")

    def _alter_limit(self, event: Event) -> None:
        asked_s = time.time()
        self._limits[event.client] = event.limit
        client = _client(event.client)
        self._alter(client)
        self._note(client, asked_s)
        self._happened(f"alter: {event.client} {event.limit / 1024:.0f} KiB/s")

    def _alter(self, client: Client) -> None:
        with Admin(self._proxy.port(_LISTENER)) as admin:
            answer = admin.alter(tuple(client.entity.items()), {client.key: self._limits[client.name]})
        if answer.error_code:
            self._find(f"the quota of {client.name} was refused: {answer.error_message}")

    def _note(self, client: Client, asked_s: float) -> None:
        change = Change(asked_s, time.time(), self._limits[client.name])
        self.evidence.changes.setdefault(client.name, []).append(change)

    def _kill_broker(self, event: Event) -> None:
        if self._returning is not None or not self._leaders.is_in_sync():
            self._left.append(event._replace(at_s=self._now() + _POSTPONED_S))
            self._left.sort(key=lambda one: one.at_s)
            return
        broker = self._kafka.brokers[event.broker]
        self._happened(f"SIGKILL: broker {broker.node_id}, for {event.away_s:.0f} s")
        broker.kill()
        self._returning = event.broker, time.time()
        self._restart_broker_s = self._now() + event.away_s

    def _bring_broker_back(self) -> None:
        if self._returning is None or self._now() < self._restart_broker_s:
            return
        index, killed_s = self._returning
        broker = self._kafka.brokers[index]
        if not broker.is_running:
            broker.start()
        elif all(frames.answers(endpoint.port) for endpoint in broker.listeners.values()):
            self.evidence.brokers_away.append(Span(killed_s, time.time()))
            self._returning = None
            self._happened(f"broker {broker.node_id} answers again")
        elif self._now() > self._restart_broker_s + _BROKER_RETURNS_S:
            raise HarnessError(f"broker {broker.node_id} does not return:\n{broker.process.log_tail()}")

    def _restart_proxy(self, event: Event) -> None:
        began_s = time.time()
        self._end_life("SIGKILL" if event.kind is Kind.KILL_PROXY else "SIGTERM")
        self._proxy.start()
        self.evidence.restarts.append(Span(began_s, time.time()))
        self._happened(f"{self.evidence.lives[-1].end}: proxy, back after {time.time() - began_s:.1f} s")
        self._begin_life()
        with Admin(self._proxy.port(_LISTENER)) as admin:
            kept = admin.describe()
        for client in CLIENTS:
            if kept.get(frozenset(client.entity.items()), {}).get(client.key) != self._limits[client.name]:
                self._find(f"after a restart the quota of {client.name} is not the one that was acknowledged")

    def _begin_life(self) -> None:
        life = Life(time.time())
        self.evidence.lives.append(life)
        self._sampler.begin(life)
        self._short = ShortConnections(self._proxy.port(_LISTENER), life, least_s=self._warm_up_s)

    def _end_life(self, how: str) -> None:
        life = self.evidence.lives[-1]
        self._short.end()
        self._sampler.end()
        life.end, life.ended_s = how, time.time()
        log, process = self._proxy.process.log, self._proxy.process
        if not process.is_running:
            life.faults.append(f"ended by itself: exit status {process.exit_status}\n{process.log_tail()}")
        if how == "SIGKILL":
            self._proxy.kill()
        elif status := self._proxy.stop():
            life.faults.append(f"exit status {status} after SIGTERM")
        text = log.read_text(errors="replace")
        life.faults += [f"in the log:\n{trace}" for trace in tracebacks(text)[:3]]

    # --- the end

    def _end_programs(self) -> None:
        """Stop producers and visitors, then consumers, and wait for what they say at last."""
        self._say("stopping all clients")
        programs = self.evidence.programs
        readers = [client.name for client in CLIENTS if client.role == "consume"]
        for role in ("visit", "produce"):
            self._stop_file(role).touch()
        self._await_end([name for name in programs if name not in readers])
        self._stop_file("consume").touch()
        self._await_end(readers)

    def _await_end(self, names: list[str]) -> None:
        deadline = time.monotonic() + _CLIENTS_END_S
        while any(self.evidence.programs[name].process.is_running for name in names):
            if time.monotonic() > deadline:
                break
            time.sleep(_TICK_S)
        for name in names:
            program = self.evidence.programs[name]
            program.listen()
            if program.last is None and name not in self._ended:
                self._find(f"{name} did not come to its end:\n{program.log_tail()}")
            program.process.kill()

    def _end_proxy(self) -> None:
        """See that the proxy has given back all connections, and stop it."""

        def has_none() -> bool:
            return self._proxy.metrics().total("kafka_quota_proxy_connections") == 0

        try:
            wait_until(has_none, timeout_s=60, what="no connection is left when all clients have ended", poll_s=0.5)
        except HarnessError as error:
            self._find(str(error))
        self._end_life("SIGTERM")

    def _listen(self) -> None:
        for name, program in self.evidence.programs.items():
            program.listen()
            if not program.process.is_running and name not in self._ended:
                self._ended.add(name)
                self._find(f"{name} ended early, exit status {program.process.exit_status}:\n{program.log_tail()}")
        if not self._proxy.process.is_running:
            self._find(f"the proxy ended by itself:\n{self._proxy.process.log_tail()}")
            raise HarnessError("the proxy ended by itself")

    def _progress(self) -> str:
        life = self.evidence.lives[-1]
        sums = {role: sum(self.evidence.programs[c.name].records for c in CLIENTS if c.role == role) for role in _ROLES}
        lag = sorted(value for _, value in life.lag[-150:])
        return (
            f"life {len(self.evidence.lives)}, {time.time() - life.started_s:4.0f} s: "
            f"{life.memory[-1][1] if life.memory else 0:.1f} MiB, "
            f"{life.descriptors[-1][1] if life.descriptors else 0:.0f} descriptors, "
            f"lag {lag[len(lag) // 2] if lag else 0:.1f} ms, p99 {lag[len(lag) * 99 // 100] if lag else 0:.1f} ms; "
            f"acknowledged {sums['produce']:,}, read {sums['consume']:,}, "
            f"visits {self.evidence.programs['visitors'].records // 10}; findings {len(self.evidence.findings)}"
        )

    def _happened(self, what: str) -> None:
        self.evidence.events.append((self._now(), what))
        self._say(what)

    def _find(self, what: str) -> None:
        self.evidence.findings.append(what)
        self._say(f"FINDING: {what}")


_ROLES: Final = ("produce", "consume")


def _client(name: str) -> Client:
    return next(client for client in CLIENTS if client.name == name)


def _read(kafka: Kafka, topic: str) -> Topic:
    """Read a whole topic from the brokers themselves."""
    found = Topic(Notes(), [])
    for message in messages(kafka, topic, timeout_s=600):
        before = len(found.notes.faults)
        found.notes.take(message.offset() or 0, message.key(), message.value())
        if len(found.notes.faults) == before:
            found.numbers.append((int(message.key() or b""), message.timestamp()[1] / 1_000))
    return found


def away_spans(evidence: Evidence) -> list[Span]:
    """Return the times in which a broker was away, and some time after each: a baseline is not to be seen then."""
    return [Span(one.start, one.end + _AFTER_AWAY_S) for one in evidence.brokers_away]
