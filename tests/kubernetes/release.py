"""A release of the chart in a cluster."""

from pathlib import Path
from typing import Any, Final

import yaml

from tests.kubernetes.cluster import Cluster
from tests.support.pages import REPOSITORY

CHART: Final = REPOSITORY / "deploy" / "helm" / "kafka-quota-proxy"
# The Deployment and the Service of the release "quota".
NAME: Final = "quota-kafka-quota-proxy"


def listener(ports: str, *, bind: str = "0.0.0.0:9092", **more: str) -> dict[str, Any]:
    """Return values with one listener."""
    one = {"name": "clients", "bind": bind, "bootstrap_servers": "kafka:9092", "broker_ports": ports, **more}
    return {"config": {"listeners": [one]}}


class Release:
    """A release in a namespace. Values that all its upgrades have in common are in ``common``."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        directory: Path,
        *,
        name: str = "quota",
        common: dict[str, Any] | None = None,
    ) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name
        self._file = directory / "values.yaml"
        self._common = common or {}

    def upgrade(self, values: dict[str, Any], *options: str) -> tuple[int, str]:
        """Install or upgrade the release. Return the exit status and what Helm reports besides its notes."""
        self._file.write_text(yaml.safe_dump(self._common | values), encoding="utf-8")
        where = ("--namespace", self.namespace, "--values", self._file)
        status, out, errors = self.cluster.helm("upgrade", "--install", self.name, CHART, *where, *options)
        return status, errors if status == 0 else f"{out}\n{errors}"

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl("--namespace", self.namespace, *arguments)

    def get(self, kinds: str, *options: str) -> dict[str, dict[str, Any]]:
        """Return objects of the namespace by name, Kubernetes' own ConfigMap left out."""
        found = self.cluster.get(kinds, "--namespace", self.namespace, *options)
        return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"] != "kube-root-ca.crt"}

    def deployment(self) -> dict[str, Any]:
        return self.get("deployment")[NAME]

    def mounted(self) -> str:
        """Return the name of the ConfigMap that new pods mount."""
        name: str = self.deployment()["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
        return name

    def state(self) -> dict[str, object]:
        """Return what Helm can change: the data of each ConfigMap, and the generation of the Deployment."""
        files: dict[str, object] = {name: one["data"] for name, one in self.get("configmap").items()}
        return files | {"generation": self.deployment()["metadata"]["generation"]}
