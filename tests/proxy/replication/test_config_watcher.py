"""Tests the watcher of a cluster's configuration, with a simulated cluster."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from kafka_quota_proxy.config.model import Address, AdminClient, Replication
from kafka_quota_proxy.config.throttled_replicas import ALL_REPLICAS
from kafka_quota_proxy.proxy.replication import config_watcher
from kafka_quota_proxy.proxy.replication.cluster_view import LEADER_RATE, LEADER_REPLICAS, ClusterView, Readings
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from tests.support.stub_broker import eventually, on_uvloop

ONE, OTHER = (Address(host="k", port=port) for port in (1, 2))
QUIET = Readings(brokers=(1,), topic_names={}, broker_configs={1: {}}, topic_configs={})
THROTTLED = Readings(brokers=(1,), broker_configs={1: {LEADER_RATE: "50"}}, topic_configs={"t": {LEADER_REPLICAS: "*"}})
FROM_CLUSTER = Replication(from_cluster=True, poll_interval_ms=3_600_000)


class Script:
    """A simulated cluster. A test may change its ``readings``, or make it fail, at any time."""

    def __init__(self, readings: Readings = QUIET) -> None:
        self.readings = readings
        self.failure: Exception | None = None
        self.node_ids: dict[Address, int] = {}
        self.connects: list[tuple[AdminClient, tuple[Address, ...]]] = []
        self.asked: list[dict[str, bool]] = []
        self.asked_at_s: list[float] = []
        self.closed = 0
        self.views: list[ClusterView] = []
        self.held: threading.Event | None = None  # an event that every connect waits for
        self.answer_held: threading.Event | None = None  # an event that every answer waits for

    def connect(self, settings: AdminClient, fallback: tuple[Address, ...]) -> "Script":
        self.connects.append((settings, fallback))
        if self.held:
            self.held.wait(10)
        return self

    def read(self, **asked: bool) -> Readings:
        self.asked_at_s.append(time.monotonic())
        self.asked.append(asked)
        readings = self.readings
        if self.answer_held:
            self.answer_held.wait(10)
        if self.failure:
            raise self.failure
        return readings

    def identify(self, upstream: Address, node_ids: Iterable[int]) -> int | None:
        return next((node_id for node_id in node_ids if node_id == self.node_ids.get(upstream)), None)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def _polls_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_watcher, "_LEAST_BETWEEN_S", 0.05)


@asynccontextmanager
async def watching(
    script: Script, replication: Replication = FROM_CLUSTER, upstreams: dict[Address, int | None] | None = None
) -> AsyncIterator[ReplicationWatcher]:
    watcher = ReplicationWatcher(
        replication,
        upstreams or {},
        fallback=(ONE,),
        on_view=script.views.append,
        connect=script.connect,  # type: ignore[arg-type]
    )
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watcher.run())
        yield watcher
        task.cancel()


async def polled(script: Script, times: int) -> None:
    await eventually(lambda: len(script.asked) >= times)


@on_uvloop
async def test_each_change_is_reported_once_and_a_request_polls_soon() -> None:
    script = Script(THROTTLED)
    async with watching(script) as watcher:
        await eventually(lambda: script.views)
        watcher.request()
        watcher.request()
        await polled(script, 2)
        script.readings = QUIET
        watcher.request()
        await eventually(lambda: len(script.views) == 2)

    assert [view.leader_rates for view in script.views] == [{1: 50.0}, {}]
    assert script.views[0].leader_replicas == {"t": ALL_REPLICAS}
    assert len(script.asked) == 3
    assert script.connects == [(AdminClient(), (ONE,))]
    assert watcher.is_successful
    assert watcher.last_success_s > 0


@on_uvloop
async def test_the_shortest_poll_interval_is_kept() -> None:
    script = Script()
    async with watching(script, replace(FROM_CLUSTER, poll_interval_ms=200)):
        await polled(script, 6)

    gaps_s = [after - before for before, after in pairwise(script.asked_at_s)]
    assert 0.19 < min(gaps_s) < 0.4


@on_uvloop
async def test_without_from_cluster_no_configs_are_read() -> None:
    script = Script(Readings(brokers=(1,), topic_names={bytes(16): "t"}))
    async with watching(script, Replication(leader_rate=1.0)):
        await eventually(lambda: script.views)

    assert script.asked[0] == {"has_topics": True, "has_configs": False, "has_topic_configs": False}
    assert script.views == [ClusterView(topic_names={bytes(16): "t"})]


@on_uvloop
async def test_all_topics_are_read_only_during_a_throttle_or_on_request() -> None:
    script = Script()
    async with watching(script, replace(FROM_CLUSTER, poll_interval_ms=200)) as watcher:
        await polled(script, 2)
        script.readings = replace(THROTTLED, topic_configs=None)
        await eventually(lambda: script.views and script.views[-1].leader_rates)
        seen = len(script.asked)
        await polled(script, seen + 2)
        script.readings = QUIET
        await eventually(lambda: not watcher.view.has_throttle)
        cleared = len(script.asked)
        await polled(script, cleared + 1)
        watcher.request()
        await polled(script, cleared + 2)

    topics = [asked["has_topic_configs"] for asked in script.asked]
    assert topics[:2] == [True, False]
    assert topics[seen : seen + 2] == [True, True]
    assert topics[cleared : cleared + 2] == [False, True]


@on_uvloop
async def test_a_new_rate_has_its_replica_lists_read_at_once() -> None:
    script = Script()
    async with watching(script) as watcher:
        await polled(script, 1)
        script.readings = replace(THROTTLED, topic_configs=None)
        watcher._requested.set()  # the next poll, which reads no topic configurations
        await polled(script, 3)

    assert [asked["has_topic_configs"] for asked in script.asked] == [True, False, True]


@on_uvloop
async def _a_cluster_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(THROTTLED)
    async with watching(script) as watcher:
        await eventually(lambda: script.views)
        succeeded_s = watcher.last_success_s
        script.failure = OSError("no route")
        for times in (2, 3):
            watcher.request()
            await polled(script, times)
        await eventually(lambda: not watcher.is_successful)
        assert watcher.view == script.views[-1]
        assert watcher.last_success_s == succeeded_s
        assert len(script.views) == 1
        script.failure = None
        watcher.request()
        await eventually(lambda: watcher.is_successful)

    warned = "cannot ask the cluster for its throttles (OSError: no route); the last known ones still apply"
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [warned]
    assert len(script.connects) == 3  # the first connection, and one after each failure
    assert script.views[-1].leader_rates == {1: 50.0}


def test_an_unreachable_cluster_changes_nothing_and_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _a_cluster_that_is_away(caplog)


@on_uvloop
async def _node_ids(caplog: pytest.LogCaptureFixture) -> None:
    script = Script()
    script.node_ids = {ONE: 1}
    third = Address(host="k", port=3)
    async with watching(script, upstreams={ONE: None, OTHER: 2, third: None}):
        await eventually(lambda: "cannot find out which broker k:3 is" in caplog.text)

    assert script.views[0].node_ids == {OTHER: 2}
    assert script.views[-1].node_ids == {OTHER: 2, ONE: 1}


def test_an_upstream_has_the_node_id_of_the_file_or_else_its_own_answer(caplog: pytest.LogCaptureFixture) -> None:
    _node_ids(caplog)


@on_uvloop
async def test_an_unidentified_upstream_is_asked_again_when_brokers_change() -> None:
    script = Script()
    script.node_ids = {ONE: 2}
    async with watching(script, upstreams={ONE: None}) as watcher:
        await polled(script, 1)
        script.readings = replace(QUIET, brokers=(1, 2))
        watcher.request()
        await eventually(lambda: watcher.view.node_ids == {ONE: 2})


@on_uvloop
async def test_a_reload_uses_the_new_servers() -> None:
    script = Script(THROTTLED)
    elsewhere = AdminClient(bootstrap_servers=(OTHER,))
    async with watching(script) as watcher:
        await eventually(lambda: script.views)
        watcher.update(replace(FROM_CLUSTER, admin_client=elsewhere))
        await eventually(lambda: len(script.connects) == 2)
        await eventually(lambda: script.closed == 1)
        watcher.update(Replication(leader_rate=1.0, admin_client=elsewhere))
        assert not script.views[-1].has_throttle
        script.readings = Readings(brokers=(1,))
        await eventually(lambda: not script.asked[-1]["has_configs"])

    assert script.connects[1] == (elsewhere, (ONE,))
    assert not watcher.view.has_throttle


@on_uvloop
async def test_an_answer_for_an_old_configuration_is_ignored() -> None:
    script = Script(THROTTLED)
    script.answer_held = threading.Event()
    async with watching(script) as watcher:
        await polled(script, 1)
        watcher.update(Replication(leader_rate=1.0))
        script.readings = Readings(brokers=(1,), topic_names={bytes(16): "t"})
        script.answer_held.set()
        await eventually(lambda: watcher.view.topic_names)

    assert not any(view.has_throttle for view in script.views)


@on_uvloop
async def test_a_stop_does_not_wait_for_the_cluster() -> None:
    script = Script()
    script.held = threading.Event()
    async with watching(script):
        await eventually(lambda: script.connects)
    assert not script.asked

    script.held.set()

    await eventually(lambda: script.closed)


def _told(caplog: pytest.LogCaptureFixture) -> Callable[[], bool]:
    return lambda: caplog.text.count("topic t: leader.replication.throttled.replicas: 'none' is not a replica") > 0


@on_uvloop
async def _unread(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(replace(THROTTLED, topic_configs={"t": {LEADER_REPLICAS: "none"}}))
    async with watching(script) as watcher:
        await eventually(_told(caplog))
        watcher.request()
        await polled(script, 2)

    assert caplog.text.count("is not a replica") == 1


def test_unreadable_values_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    _unread(caplog)
