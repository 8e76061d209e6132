"""The watcher reads a cluster's own throttles, which Kafka's own tools set at real brokers."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient

from kafka_quota_proxy.config.addresses import parse_addresses
from kafka_quota_proxy.config.model import Address, Replication
from kafka_quota_proxy.config.throttled_replicas import ALL_REPLICAS, parse
from kafka_quota_proxy.proxy.replication.cluster_view import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ClusterView,
)
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from tests.end_to_end.support.artifacts import KAFKA_2_8, KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.kafka_configs import run_configs
from tests.end_to_end.support.old_kafka import OldKafka

_BOTH_RATES = f"{LEADER_RATE},{FOLLOWER_RATE}"
_BOTH_LISTS = f"{LEADER_REPLICAS},{FOLLOWER_REPLICAS}"


class Watched:
    """A running watcher, and the last view that it reported."""

    def __init__(self, kafka: Kafka, replication: Replication) -> None:
        self.view = ClusterView()
        self.upstreams = parse_addresses(kafka.bootstrap_servers)
        self.watcher = ReplicationWatcher(
            replication, dict.fromkeys(self.upstreams), fallback=self.upstreams, on_view=self._see
        )

    def _see(self, view: ClusterView) -> None:
        self.view = view

    async def until(self, is_so: Callable[[ClusterView], object], *, timeout_s: float = 60) -> ClusterView:
        """Wait for a view that fulfils the condition, and return that view."""
        async with asyncio.timeout(timeout_s):
            while not is_so(self.view):  # noqa: ASYNC110 - views arrive in a callback
                await asyncio.sleep(0.05)
        return self.view


@asynccontextmanager
async def watched(kafka: Kafka, replication: Replication) -> AsyncIterator[Watched]:
    """Run a watcher in a ``with`` block."""
    found = Watched(kafka, replication)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(found.watcher.run())
        yield found
        task.cancel()
    await asyncio.to_thread(_join_threads)


def _join_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("cluster"):
            thread.join()


async def configure(kafka: Kafka, *changes: str) -> None:
    """Run kafka-configs.sh for each change. ``|`` separates the words of a change."""
    commands = [f"--alter|{change}" for change in changes]
    outputs = await asyncio.to_thread(run_configs, kafka, kafka.version, kafka.bootstrap_servers, *commands)
    assert [status for status, *_ in outputs] == ["0"] * len(changes), outputs


async def reassign(kafka: Kafka, plan: Path, *what: str) -> str:
    """Run kafka-reassign-partitions.sh, and return what it prints."""
    package = "kafka.admin" if kafka.version == KAFKA_2_8 else "org.apache.kafka.tools.reassign"
    tool = f"{package}.ReassignPartitionsCommand"
    arguments = ("--bootstrap-server", kafka.bootstrap_servers, "--reassignment-json-file", str(plan), *what)
    return await asyncio.to_thread(kafka.run_java, tool, *arguments)


async def verify_until_complete(kafka: Kafka, plan: Path) -> None:
    """Run ``--verify`` until the partitions have moved. Only then it removes the throttle."""
    async with asyncio.timeout(60):
        while "still in progress" in await reassign(kafka, plan, "--verify"):
            pass


def _cluster(version: str) -> Kafka:
    if version == KAFKA_2_8:
        return OldKafka(nodes=2)
    return Kafka(version, nodes=2)


def _topic_of_one_replica_each(kafka: Kafka, *, partitions: int) -> str:
    """Create a topic with partition p on broker p % nodes + 1, and return its name."""
    name = f"moving-{uuid.uuid4().hex[:12]}"
    assignments = {p: [kafka.brokers[p % len(kafka.brokers)].node_id] for p in range(partitions)}
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({name: {"assignments": assignments}})
    return name


@pytest.mark.parametrize(
    "version",
    [KAFKA_4, *(pytest.param(version, marks=pytest.mark.long) for version in (KAFKA_4_3, KAFKA_3_9, KAFKA_2_8))],
)
async def test_cluster_throttles_are_followed(version: str, tmp_path: Path) -> None:
    replication = Replication(from_cluster=True, poll_interval_ms=500)
    with _cluster(version) as kafka:
        async with watched(kafka, replication) as cluster:
            view = await cluster.until(lambda view: len(view.node_ids) == 2)
            topic = await asyncio.to_thread(_topic_of_one_replica_each, kafka, partitions=2)
            assert view.node_ids == {
                Address(host="127.0.0.1", port=broker.listeners["DIRECT"].port): broker.node_id
                for broker in kafka.brokers
            }
            assert not view.has_throttle

            def has_heard(view: ClusterView) -> bool:
                cluster.watcher.request()  # this broker may learn of the topic later than others
                # At inter-broker protocol 0.10.1 there are no topic ids.
                return topic in view.topic_names.values() or version == KAFKA_2_8

            await cluster.until(has_heard)
            assert cluster.watcher.is_successful

            # kafka-configs.sh, including the default of all brokers
            every = "--entity-type|brokers|--entity-default"
            second = "--entity-type|brokers|--entity-name|2"
            of_topic = f"--entity-type|topics|--entity-name|{topic}"
            await configure(
                kafka,
                f"{every}|--add-config|{LEADER_RATE}=1111111",
                f"{second}|--add-config|{LEADER_RATE}=2222222,{FOLLOWER_RATE}=3333333",
                f"{of_topic}|--add-config|{LEADER_REPLICAS}=[0:1,1:2],{FOLLOWER_REPLICAS}=*",
            )
            view = await cluster.until(
                lambda view: view.leader_rates == {1: 1111111.0, 2: 2222222.0} and view.follower_replicas
            )
            assert view.follower_rates == {2: 3333333.0}
            assert view.leader_replicas == {topic: parse("0:1,1:2")}
            assert view.follower_replicas == {topic: ALL_REPLICAS}
            assert not view.moving

            # and deleted
            await configure(
                kafka,
                f"{every}|--delete-config|{LEADER_RATE}",
                f"{second}|--delete-config|{_BOTH_RATES}",
                f"{of_topic}|--delete-config|{_BOTH_LISTS}",
            )
            await cluster.until(lambda view: not view.has_throttle)

            # kafka-reassign-partitions.sh --throttle, with records, so that it takes a while
            plan = tmp_path / "plan.json"
            moves = [
                {"topic": topic, "partition": 0, "replicas": [2]},
                {"topic": topic, "partition": 1, "replicas": [1]},
            ]
            plan.write_text(json.dumps({"version": 1, "partitions": moves}))
            await reassign(kafka, plan, "--execute", "--throttle", "4444444")
            view = await cluster.until(lambda view: view.leader_replicas and len(view.follower_rates) == 2)
            assert view.leader_rates == view.follower_rates == {1: 4444444.0, 2: 4444444.0}
            assert set(view.leader_replicas) | set(view.follower_replicas) == {topic}
            await verify_until_complete(kafka, plan)
            await cluster.until(lambda view: not view.has_throttle and not view.moving)
