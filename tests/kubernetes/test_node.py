"""Pods of the chart run on a node of a real Kubernetes, in front of a real Kafka."""

import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.kafka import Broker, Kafka
from tests.end_to_end.support.processes import scratch, wait_until
from tests.kubernetes.cluster import NODE_ADDRESS, Cluster
from tests.kubernetes.images import archives
from tests.kubernetes.load import Load
from tests.kubernetes.release import NAME, Release, listener

_PATIENCE_S = 180
_WAIT = ("--wait", f"--timeout={_PATIENCE_S}s")
_POD = f"app.kubernetes.io/name={NAME.removeprefix('quota-')}"


class KafkaForPods(Kafka):
    """A broker that pods can reach, by its listener ``PODS``."""

    def __init__(self) -> None:
        super().__init__(KAFKA_4, unproxied=("PODS",))

    @property
    def address(self) -> str:
        """The ``host:port`` for pods."""
        return f"{NODE_ADDRESS}:{self.listener('PODS').port}"

    def _properties(self, broker: Broker) -> dict[str, str | int]:
        own = super()._properties(broker)
        for key, host in (("listeners", ""), ("advertised.listeners", NODE_ADDRESS)):
            own[key] = str(own[key]).replace("PODS://127.0.0.1", f"PODS://{host}")
        return own


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Cluster:
    if os.geteuid() != 0:
        pytest.skip("only root can start a node")
    with scratch("images") as directory:
        cluster.add_node(archives(directory))
    return cluster


@pytest.fixture(scope="module")
def kafka(node: Cluster) -> Iterator[KafkaForPods]:
    """Starts after the node, whose address it has."""
    with KafkaForPods() as kafka:
        yield kafka


@pytest.fixture
def release(node: Cluster, kafka: KafkaForPods, namespace: str, tmp_path: Path) -> Release:
    """A release whose only pod is ready, in front of the broker."""
    release = Release(node, namespace, tmp_path)
    assert release.upgrade(values(kafka), *_WAIT) == (0, "")
    return release


def values(kafka: KafkaForPods, ports: str = "9093-9102", **more: str) -> dict[str, Any]:
    return listener(ports, bootstrap_servers=kafka.address, **more)


def pods(release: Release) -> dict[str, dict[str, Any]]:
    return {name: pod for name, pod in release.get("pod", "--selector", _POD).items() if not _is_ending(pod)}


def _is_ending(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _seconds(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def test_a_pod_is_ready_when_its_proxy_is_and_nothing_warns(release: Release) -> None:
    ((name, pod),) = pods(release).items()
    (container,) = pod["status"]["containerStatuses"]
    (ready,) = (one for one in pod["status"]["conditions"] if one["type"] == "Ready")
    lines = [json.loads(line) for line in release.kubectl("logs", name).splitlines()]
    listens = min(one["time"] for one in lines if one["message"].startswith("listening on"))
    warnings = [one["message"] for one in release.get("event").values() if one["type"] == "Warning"]

    assert _seconds(listens, ready["lastTransitionTime"]) <= 4
    if _seconds(container["state"]["running"]["startedAt"], listens) < 1:  # otherwise the machine is busy
        assert warnings == []
    # Nothing of the check is left.
    assert release.get("job") == {}
    assert set(release.get("configmap")) == {release.mounted()}


def test_a_refused_configuration_fails_and_changes_nothing(release: Release, kafka: KafkaForPods) -> None:
    before, running = release.state(), pods(release)
    refused = values(kafka)
    refused["config"]["quotas"] = [{"client-id": "etl", "producer_byte_rat": "1MiB"}]

    status, said = release.upgrade(refused, *_WAIT)

    assert status == 1
    assert "proxy.yaml:" in said
    assert "producer_byte_rat" in said
    assert release.state() == before
    assert {name: pod["status"]["startTime"] for name, pod in pods(release).items()} == {
        name: pod["status"]["startTime"] for name, pod in running.items()
    }
    assert release.get("job") == {}


def test_an_old_pod_starts_again_after_an_upgrade_that_failed(release: Release, kafka: KafkaForPods) -> None:
    (old,) = pods(release)
    # No address of the pod, which only its start can see.
    status, _ = release.upgrade(values(kafka, bind="192.0.2.1:9092"), "--wait", "--timeout=15s")
    release.kubectl("exec", old, "--", "sh", "-c", "kill 1")

    def has_started_again() -> bool:
        (container,) = pods(release)[old]["status"]["containerStatuses"]
        return (container["restartCount"], container["ready"]) == (1, True)

    assert status == 1
    wait_until(has_started_again, timeout_s=_PATIENCE_S, what="the old pod starts again", poll_s=1)
    assert release.upgrade(values(kafka), *_WAIT) == (0, "")
    assert list(pods(release)) == [old]


def test_no_acknowledgement_is_lost_while_pods_come_and_go(
    release: Release, kafka: KafkaForPods, capsys: pytest.CaptureFixture[str]
) -> None:
    # The load runs outside of the cluster's DNS, so the proxy advertises the address of its Service.
    address: str = release.get("service")[NAME]["spec"]["clusterIP"]
    assert release.upgrade(values(kafka, advertised_host=address), *_WAIT) == (0, "")
    began = time.monotonic()

    with Load(f"{address}:9092", direct=kafka.bootstrap_servers, topic=release.namespace) as load:
        release.kubectl("rollout", "restart", f"deployment/{NAME}")
        release.kubectl("rollout", "status", f"deployment/{NAME}", f"--timeout={_PATIENCE_S}s")
        assert release.upgrade(values(kafka, "9093-9104", advertised_host=address), *_WAIT) == (0, "")
        (pod,) = pods(release).values()
        release.cluster.kill(pod)
        wait_until(lambda: _restarts(release) == 1, timeout_s=_PATIENCE_S, what="the pod starts again", poll_s=0.5)
    outcome = load.outcome()

    with capsys.disabled():
        sys.stdout.write(f"\n{time.monotonic() - began:.0f} s: {outcome}\n")
    assert outcome.acknowledged > 1_000
    assert (outcome.failed, outcome.lost, outcome.twice, outcome.disordered) == (0, 0, 0, 0)


def _restarts(release: Release) -> int:
    containers = [one for pod in pods(release).values() for one in pod["status"]["containerStatuses"]]
    return sum(one["restartCount"] for one in containers if one["ready"])
