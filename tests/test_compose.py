"""deploy/compose.yaml is a valid compose file, and the files, addresses and ports in it fit together."""

import re
import shutil
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from kafka_quota_proxy.config.load import load
from tests.support.promtool import promtool

REPOSITORY = Path(__file__).parent.parent
DEPLOY = REPOSITORY / "deploy"
FILE = DEPLOY / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
PROXY_CONFIG = PurePosixPath("/etc/kafka-quota-proxy/proxy.yaml")  # the WORKDIR and CMD of the Dockerfile


def check_schema(file: Path) -> subprocess.CompletedProcess[str]:
    """Check a file against the JSON schema of the compose specification."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def mounts(service: str) -> dict[PurePosixPath, Path]:
    """Return the files and directories that a service mounts, by their paths in the container."""
    parts = [volume.split(":") for volume in SERVICES[service].get("volumes", [])]
    assert all(len(part) == 3 and part[2] == "ro" for part in parts), "a mount is not read-only"
    return {PurePosixPath(inside): DEPLOY / outside for outside, inside, _ in parts}


def mounted(service: str, inside: PurePosixPath) -> Path:
    """Return the file that a container sees at the path ``inside``."""
    found = [
        outside / inside.relative_to(place)
        for place, outside in mounts(service).items()
        if inside.is_relative_to(place)
    ]
    assert len(found) == 1, f"{service} does not mount {inside}"
    return found[0]


def published(service: str) -> dict[int, int]:
    """Return the ports of this machine, and the ports of the container to which each leads."""
    parts = [port.split(":") for port in SERVICES[service].get("ports", [])]
    assert all(len(part) == 3 and ip_address(part[0]).is_loopback for part in parts), "a port is open to other machines"
    return {int(outside): int(inside) for _, outside, inside in parts}


def test_the_file_follows_the_compose_specification() -> None:
    checked = check_schema(FILE)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_images_have_versions_and_the_proxy_is_built_here() -> None:
    versions = {name: service["image"].rpartition(":")[2] for name, service in SERVICES.items()}
    project = re.findall(r'^version = "(.+)"$', (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"), re.M)

    assert [name for name, version in versions.items() if not re.fullmatch(r"v?\d+\.\d+\.\d+", version)] == []
    assert versions["proxy"] == project[0]
    assert (DEPLOY / SERVICES["proxy"]["build"]["context"] / "Dockerfile").resolve() == REPOSITORY / "Dockerfile"
    kubernetes = (DEPLOY / "kubernetes-sidecar.yaml").read_text(encoding="utf-8")
    assert f"image: {SERVICES['kafka']['image']}\n" in kubernetes


@pytest.mark.parametrize("service", SERVICES)
def test_everything_that_is_mounted_exists(service: str) -> None:
    assert [outside for outside in mounts(service).values() if not outside.exists()] == []


def test_clients_reach_kafka_through_the_proxy_only() -> None:
    environment = SERVICES["kafka"]["environment"]
    loaded = load(mounted("proxy", PROXY_CONFIG))
    (listener,) = loaded.config.listeners
    listeners = dict(one.split("://") for one in environment["KAFKA_LISTENERS"].split(","))
    advertised = dict(one.split("://") for one in environment["KAFKA_ADVERTISED_LISTENERS"].split(","))
    outside = [name for name, address in listeners.items() if not address.startswith("127.0.0.1:")]

    assert loaded.warnings == ()
    assert len(loaded.config.quotas) >= 2
    # Only the proxy shares a network with Kafka, whose other listeners are within its container.
    assert published("kafka") == {}
    assert [name for name, one in SERVICES.items() if set(one["networks"]) & set(SERVICES["kafka"]["networks"])] == [
        "kafka",
        "proxy",
    ]
    assert outside == ["CLIENTS"]
    assert str(listener.upstream) == f"kafka{listeners['CLIENTS']}"
    # Kafka advertises the port of this machine that leads to the proxy.
    host, _, port = advertised["CLIENTS"].partition(":")
    assert host == "localhost"
    assert published("proxy") == {int(port): listener.bind.port}
    assert ip_address(listener.bind.host).is_unspecified
    assert environment["KAFKA_INTER_BROKER_LISTENER_NAME"] in set(listeners) - {"CLIENTS"}
    assert {f"{environment['KAFKA_NODE_ID']}@{listeners['CONTROLLER']}"} == {
        environment["KAFKA_CONTROLLER_QUORUM_VOTERS"]
    }


def test_the_proxy_drains_before_it_is_killed() -> None:
    config = load(mounted("proxy", PROXY_CONFIG)).config
    grace_s = int(SERVICES["proxy"]["stop_grace_period"].removesuffix("s"))

    assert config.drain_timeout_ms < grace_s * 1_000
    # Services stop in the reverse order, so that Kafka outlives the drain.
    assert SERVICES["proxy"]["depends_on"] == ["kafka"]


def test_prometheus_reads_the_metrics_and_the_alert_rules(tmp_path: Path) -> None:
    for inside, outside in mounts("prometheus").items():
        shutil.copy(outside, tmp_path / inside.name)
        assert inside.parent == PurePosixPath("/etc/prometheus")
    prometheus = yaml.safe_load((tmp_path / "prometheus.yml").read_text(encoding="utf-8"))
    admin = load(mounted("proxy", PROXY_CONFIG)).config.admin
    assert admin is not None
    assert admin.metrics_bind is not None

    promtool("check", "config", tmp_path / "prometheus.yml")

    assert [one["static_configs"] for one in prometheus["scrape_configs"]] == [
        [{"targets": [f"proxy:{admin.metrics_bind.port}"]}]
    ]
    assert ip_address(admin.metrics_bind.host).is_unspecified
    assert prometheus["rule_files"] == ["alerts.yaml"]
    assert mounted("prometheus", PurePosixPath("/etc/prometheus/alerts.yaml")) == DEPLOY / "alerts.yaml"
    assert set(SERVICES["prometheus"]["networks"]) <= set(SERVICES["proxy"]["networks"])
