"""Helm installs and upgrades the chart in a Kubernetes without a node, whose API server decides what it takes.

No pod starts here, so the Job that checks the configuration is switched off.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.release import NAME, Release, listener
from tests.support.pages import REPOSITORY

UNCHECKED: Final = {"check": {"enabled": False}}
EVERYTHING: Final[dict[str, Any]] = {
    "service": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "annotations": {"a": "b"}},
    "autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 4},
    "podDisruptionBudget": {"enabled": True, "maxUnavailable": "25%"},
    "networkPolicy": {"enabled": True, "clients": [{"podSelector": {"matchLabels": {"app": "etl"}}}]},
    "probes": {"startup": None, "readiness": {"periodSeconds": 7}},
    "podLabels": {"team": "streams"},
    "podAnnotations": {"scrape": "true"},
    "dashboards": {"enabled": True},
    "extraVolumes": [{"name": "usage", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "usage", "mountPath": "/usage"}],
}


@pytest.fixture
def release(cluster: Cluster, namespace: str, tmp_path: Path) -> Release:
    return Release(cluster, namespace, tmp_path, common=UNCHECKED)


@pytest.mark.parametrize("values", [{}, EVERYTHING, {"mode": "sidecar"}], ids=["default", "everything", "sidecar"])
def test_the_api_server_takes_all_objects_without_a_warning(values: dict[str, Any], release: Release) -> None:
    assert release.upgrade(values) == (0, "")
    assert release.upgrade(values) == (0, "")


@pytest.mark.parametrize("name", ["quota.eu", f"{'a' * 40}.eu-central-1"])
def test_a_release_may_have_a_dot_in_its_name(name: str, cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    release = Release(cluster, namespace, tmp_path, name=name, common=UNCHECKED)

    assert release.upgrade({}) == (0, "")


def test_an_upgrade_keeps_the_replicas_that_kubectl_has_asked_for(release: Release) -> None:
    release.upgrade({})
    release.kubectl("scale", f"deployment/{NAME}", "--replicas=3")

    status, errors = release.upgrade(listener("9093-9094"))

    assert (status, errors) == (0, "")
    assert release.deployment()["spec"]["replicas"] == 3


def test_an_upgrade_that_would_take_replicas_back_fails_before_it_changes_anything(release: Release) -> None:
    release.upgrade({"replicas": 1})
    release.kubectl("scale", f"deployment/{NAME}", "--replicas=3")
    before = release.state()

    status, errors = release.upgrade({"replicas": 1} | listener("9093-9094"))

    assert status == 1
    assert "kubectl has scaled the Deployment to 3" in errors
    assert release.state() == before
    assert release.upgrade({"replicas": 3}) == (0, "")


def test_old_pods_keep_their_configmap_until_they_have_gone(release: Release) -> None:
    release.upgrade({})
    first = release.mounted()

    # Without a node no pod becomes ready, so the old ones stay.
    release.upgrade(listener("9093-9094"))
    second = release.mounted()
    before = release.get("configmap")
    release.upgrade(listener("9093-9095"))
    third = release.mounted()
    release.kubectl("scale", f"deployment/{NAME}", "--replicas=0")
    release.kubectl("rollout", "status", f"deployment/{NAME}")
    release.upgrade(listener("9093-9095"))

    assert len({first, second, third}) == 3
    assert set(before) == {first, second}
    assert set(release.get("configmap")) == {third}


def test_a_change_of_quotas_stays_in_the_configmap_that_pods_read(release: Release) -> None:
    release.upgrade({})
    before = (release.mounted(), release.deployment()["metadata"]["generation"])

    release.upgrade({"config": {"quotas": [{"client-id": "etl", "producer_byte_rate": "1MiB"}]}})

    assert (release.mounted(), release.deployment()["metadata"]["generation"]) == before
    assert "producer_byte_rate" in release.get("configmap")[before[0]]["data"]["proxy.yaml"]


def test_nothing_is_left_of_a_release(release: Release) -> None:
    release.upgrade(EVERYTHING)
    release.upgrade(EVERYTHING | listener("9093-9094"))

    release.cluster.helm("uninstall", release.name, "--namespace", release.namespace)

    kinds = "configmap,service,deployment,horizontalpodautoscaler,poddisruptionbudget,networkpolicy,job"
    assert release.get(kinds) == {}


def test_the_example_of_a_sidecar_is_admitted_without_a_warning(cluster: Cluster, namespace: str) -> None:
    example = REPOSITORY / "deploy" / "kubernetes-sidecar.yaml"

    cluster.kubectl("apply", "--namespace", namespace, "--warnings-as-errors", "--filename", example)
