"""The examples of deploy/, the Dockerfile and docs/reference/metrics.md fit the program."""

import asyncio
import http.client
import json
import os
import re
import shlex
import socket
import subprocess
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.schema import FILE
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.admin.metrics.registry import MetricRegistry
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.rules.audit import COUNTED
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.pages import block
from tests.support.reloads import Reloads

_CONFIG = b"""
listeners: [{name: clients, bind: "127.0.0.1:0", upstream: "127.0.0.1:19092", inter_broker: true}]
quotas:
  - client-id: etl
    producer_byte_rate: 10MiB
    consumer_byte_rate: 10MiB
    request_percentage: 50
    request_rate: 100
    controller_mutation_rate: 10
replication: {from_cluster: true}
usage_log: {directory: usage}
"""
# A configuration file has one of these sources of quotas.
_AUTHORITIES = (
    b"quotas_from: {kafka: {bootstrap_servers: '127.0.0.1:1', topic: kafka-quota-store}}\n",
    b"quotas_from: broker\n",
    b"store: {directory: quotas.d, audit_log: audit.jsonl}\nprincipals: {admins: [admin]}\n",
    b"store: {kafka: {bootstrap_servers: '127.0.0.1:1'}}\nprincipals: {admins: [admin]}\n",
)

REPOSITORY = Path(__file__).parent.parent
DEPLOY = REPOSITORY / "deploy"


def exposed() -> set[str]:
    """Return the names of all exposed metrics, as a query uses them."""
    names: set[str] = set()
    for authority in _AUTHORITIES:
        config = load_bytes(_CONFIG + authority, file="proxy.yaml").config
        assert config.replication is not None
        server = Server(config)
        server.replication.watcher = ReplicationWatcher(config.replication, {}, fallback=(), on_view=lambda _: None)
        families = MetricRegistry(server, Reloads())
        names |= {
            f"{family.name}_bucket" if family.type == "histogram" else family.name
            for family in families.collect(1_000, rest=lambda: None)
        }
    return names


def test_the_metrics_page_lists_exactly_the_exposed_metrics() -> None:
    text = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    tables = "".join(line for line in text.splitlines(keepends=True) if line.startswith(("| `kafka_", "| `process_")))

    listed = set(re.findall(r"`((?:kafka|process)_\w+)\{?", tables))

    assert listed == {name.removesuffix("_bucket") for name in exposed()}


def test_alerts_query_exposed_metrics() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    queried = {
        name for rule in rules for name in re.findall(r"[\w:]*(?:kafka_quota_proxy|process)_[\w:]+", rule["expr"])
    }

    assert len(queried) >= 5
    assert queried <= exposed() | {rule["record"] for rule in rules if "record" in rule}


def test_alerts_query_results_that_quota_changes_count() -> None:
    text = (DEPLOY / "alerts.yaml").read_text(encoding="utf-8")
    queried = set(re.findall(r'kafka_quota_proxy_quota_changes_total\{result="(\w+)"\}', text))

    assert {"throttled", "unknown"} <= queried <= set(COUNTED)


def test_kubernetes_configuration_is_valid_and_binds_the_listed_ports() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes-sidecar.yaml").read_text(encoding="utf-8")))
    kinds = {document["kind"]: document for document in documents}

    loaded = load_bytes(kinds["ConfigMap"]["data"]["proxy.yaml"].encode(), file="proxy.yaml")

    containers = {one["name"]: one for one in kinds["StatefulSet"]["spec"]["template"]["spec"]["containers"]}
    ports = {port["name"]: port["containerPort"] for port in containers["quota-proxy"]["ports"]}
    broker = {one["name"]: one["value"] for one in containers["broker"]["env"]}
    listener, admin = loaded.config.listeners[0], loaded.config.admin
    assert admin is not None
    assert admin.metrics_bind is not None
    assert loaded.warnings == ()
    assert ports == {"clients": listener.bind.port, "metrics": admin.metrics_bind.port}
    assert f"CLIENTS://{listener.upstream}," in broker["KAFKA_LISTENERS"]
    assert f":{listener.bind.port}," in broker["KAFKA_ADVERTISED_LISTENERS"]


def test_kubernetes_objects_follow_the_schemas() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes-sidecar.yaml").read_text(encoding="utf-8")))

    for document in documents:
        kubernetes_validate.validate(document, "1.37", strict=True)


async def test_kubernetes_admin_port_serves_only_metrics_and_probes() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes-sidecar.yaml").read_text(encoding="utf-8")))
    kinds = {document["kind"]: document for document in documents}
    config = load_bytes(kinds["ConfigMap"]["data"]["proxy.yaml"].encode(), file="proxy.yaml").config
    template = kinds["StatefulSet"]["spec"]["template"]
    proxy = next(one for one in template["spec"]["containers"] if one["name"] == "quota-proxy")
    probes = [proxy[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")]
    services = {port["name"]: port["port"] for port in kinds["Service"]["spec"]["ports"]}
    admin = config.admin
    assert admin is not None
    assert admin.metrics_bind is not None
    assert services == {"clients": config.listeners[0].bind.port, "metrics": admin.metrics_bind.port}
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(admin.metrics_bind.port)
    assert ip_address(admin.bind.host).is_loopback  # not published
    assert not ip_address(admin.metrics_bind.host).is_loopback

    any_port = Address(host="127.0.0.1", port=0)
    with AdminServer(replace(admin, bind=any_port, metrics_bind=any_port), Server(config), Reloads()) as running:
        published = running.metrics_port
        paths = ["/metrics", *(probe["path"] for probe in probes), "/quotas", "/clients"]
        statuses = [await asyncio.to_thread(_status, published, path) for path in paths]

    assert {probe["port"] for probe in probes} == {"metrics"}
    assert statuses == [200, 200, 503, 404, 404]  # not ready, because nothing listens


def _status(port: int | None, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": "kafka-0.kafka"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_broker_of_the_pod_stops_as_soon_as_the_proxy_has_gone() -> None:
    """Its command waits while something listens on the port of the metrics, and no longer."""
    text = (DEPLOY / "kubernetes-sidecar.yaml").read_text(encoding="utf-8")
    kinds = {document["kind"]: document for document in yaml.safe_load_all(text)}
    containers = {one["name"]: one for one in kinds["StatefulSet"]["spec"]["template"]["spec"]["containers"]}
    command = containers["broker"]["lifecycle"]["preStop"]["exec"]["command"]
    (metrics,) = (one["containerPort"] for one in containers["quota-proxy"]["ports"] if one["name"] == "metrics")
    page = block("how-to/kubernetes.md", "yml", holding="# templates/broker.yaml").text

    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(10)
        own = [word.replace(f"/{metrics})", f"/{proxy.getsockname()[1]})") for word in command]
        with subprocess.Popen(own) as waiting:
            for _ in range(3):
                proxy.accept()[0].close()
            assert waiting.poll() is None
            proxy.close()
            assert waiting.wait(timeout=10) == 0
    assert own != command
    assert command[-1] in page


def test_pod_is_admitted_to_a_restricted_namespace_and_keeps_its_records() -> None:
    """The rules are those of the Pod Security Standards."""
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes-sidecar.yaml").read_text(encoding="utf-8")))
    kinds = {document["kind"]: document["spec"] for document in documents if "spec" in document}
    pod = kinds["StatefulSet"]["template"]["spec"]
    (claim,) = kinds["StatefulSet"]["volumeClaimTemplates"]
    (broker,) = (one for one in pod["containers"] if one["name"] == "broker")
    folders = {one["name"]: one["mountPath"] for one in broker["volumeMounts"]}
    (records,) = (one["value"] for one in broker["env"] if one["name"] == "KAFKA_LOG_DIRS")

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for one in pod["containers"]:
        assert not one["securityContext"]["allowPrivilegeEscalation"]
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert records.startswith(f"{folders[claim['metadata']['name']]}/")
    assert kinds["Service"]["publishNotReadyAddresses"]


def test_stop_timeouts_exceed_the_drain_time() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes-sidecar.yaml").read_text(encoding="utf-8")))
    kinds = {document["kind"]: document for document in documents}
    in_pod = load_bytes(kinds["ConfigMap"]["data"]["proxy.yaml"].encode(), file="proxy.yaml").config
    pod = kinds["StatefulSet"]["spec"]["template"]["spec"]
    unit = (DEPLOY / "kafka-quota-proxy.service").read_text(encoding="utf-8")
    unit_s = int(re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[0])

    assert in_pod.drain_timeout_ms / 1_000 + 30 < pod["terminationGracePeriodSeconds"]
    assert load_bytes(_CONFIG, file="proxy.yaml").config.drain_timeout_ms < unit_s * 1_000


UNIT = DEPLOY / "kafka-quota-proxy.service"
PROGRAM_IN_UNIT = "/opt/kafka-quota-proxy/bin/kafka-quota-proxy"
PAGE = "how-to/run-in-production.md"


def analyze(action: str, unit: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run an action of systemd-analyze with a unit file. Messages about other units are left out."""
    command = ["systemd-analyze", action, *options, str(unit)]
    environment = os.environ | {"SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.kafka
def test_systemd_knows_every_line_of_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "kafka-quota-proxy"
    program.touch(mode=0o755)
    override = block(PAGE, "ini", holding="LoadCredential=").text
    text = UNIT.read_text(encoding="utf-8").replace(PROGRAM_IN_UNIT, str(program))
    unit, wrong = tmp_path / UNIT.name, tmp_path / "wrong.service"
    unit.write_text(f"{text}{override}")
    wrong.write_text(f"{text}{override}NoSuchKey=yes\n")

    verified = analyze("verify", unit, "--recursive-errors=no", "--man=no")

    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    assert "NoSuchKey" in analyze("verify", wrong, "--recursive-errors=no", "--man=no").stderr


@pytest.mark.kafka
def test_the_unit_has_little_access() -> None:
    """Systemd rates a unit from 0 to 10. Up to 2.0 it calls the exposure OK."""
    rated = analyze("security", UNIT, "--offline=true", "--threshold=20", "--no-pager")

    assert rated.returncode == 0, rated.stdout + rated.stderr


def test_credentials_on_the_page_are_those_of_its_configuration() -> None:
    loaded = re.findall(r"^LoadCredential=([\w.]+):/", block(PAGE, "ini", holding="LoadCredential=").text, re.MULTILINE)
    configuration = block(PAGE, "yaml", holding="/run/credentials").text
    used = re.findall(rf"/run/credentials/{re.escape(UNIT.name)}/([\w.]+)", configuration)
    config = load_bytes(configuration.encode(), file="proxy.yaml").config
    state = re.findall(r"^StateDirectory=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)

    assert len(loaded) == configuration.count("/run/credentials/")
    assert sorted(loaded) == sorted(used)
    assert config.store is not None
    assert str(config.store.directory).startswith(f"/var/lib/{state[0]}/")


def test_the_unit_runs_the_commands_and_the_file_of_the_page() -> None:
    page = block(PAGE, "sh", holding="systemctl enable").text
    started = re.findall(r"^Exec\w+=(/opt.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    (file,) = re.findall(r"^kafka-quota-proxy init (\S+)", page, re.MULTILINE)

    assert f"ln -s {PROGRAM_IN_UNIT} /usr/local/bin/" in page
    assert started == [f"{PROGRAM_IN_UNIT} check {file}", f"{PROGRAM_IN_UNIT} run {file}"]


def test_schema_of_the_helm_chart_lists_the_sections_of_the_configuration() -> None:
    """``test_helm`` tests the rest of the chart, in minutes."""
    schema = json.loads((DEPLOY / "helm/kafka-quota-proxy/values.schema.json").read_text(encoding="utf-8"))

    assert schema["properties"]["config"]["propertyNames"]["enum"] == sorted(FILE.keys)


def test_dockerfile_copies_and_installs_everything_the_proxy_imports() -> None:
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    sources = [word for line in re.findall(r"^COPY (?!--)(.*)$", text, re.MULTILINE) for word in shlex.split(line)[:-1]]

    assert sources
    assert [source for source in sources if not (REPOSITORY / source).exists()] == []
    assert "PIP_CONSTRAINT=/src/constraints.txt PIP_BUILD_CONSTRAINT=/src/constraints.txt" in text
    installed = re.findall(r"pip install .* (\S+)$", text, re.MULTILINE)
    assert installed == ["."], "an extra would bring test tools into the image"
    assert re.search(r"^USER (?!0|root)", text, re.MULTILINE), "must not run as root"


async def test_dockerfile_checks_the_health_of_the_file_that_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    (checked,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)
    (run,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    program, command, file = json.loads(checked)
    monkeypatch.chdir(tmp_path)
    config = load_bytes(_CONFIG + b"admin: {bind: '127.0.0.1:0'}", file=file).config
    assert config.admin is not None

    with AdminServer(config.admin, Server(config), Reloads()) as running:
        (tmp_path / file).write_text(f"admin: {{bind: '127.0.0.1:{running.port}'}}\n")
        healthy = await asyncio.to_thread(main, [command, file])
    stopped = await asyncio.to_thread(main, [command, file])

    assert (healthy, stopped) == (0, 1)
    assert f'ENTRYPOINT ["{program}"]' in text
    assert json.loads(run) == ["run", file]


def test_constraints_pin_exact_versions() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()

    pin = r"[A-Za-z0-9_.-]+==(\d+!)?[A-Za-z0-9.]+(; python_version (<|>=) \"3\.\d+\")?"

    assert [line for line in lines if not re.fullmatch(pin, line)] == []
