"""Helm renders the chart of deploy/helm, and the examples of the pages that use it.

The results must be valid in Kubernetes and for the proxy, and the ports and names in them must agree.
"""

import json
import re
import shutil
import tomllib
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from kafka_quota_proxy.config.load import Loaded, load_bytes
from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.config.schema import FILE
from kafka_quota_proxy.proxy.server.config_reloader import needs_restart
from tests.support.helm import BUILD_TIMEOUT_S, helm
from tests.support.pages import REPOSITORY, block

# The first run builds Helm, which takes minutes.
pytestmark = [pytest.mark.long, pytest.mark.timeout(BUILD_TIMEOUT_S + 120)]

CHART: Final = REPOSITORY / "deploy" / "helm" / "kafka-quota-proxy"
DOCKERFILE: Final = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
# The oldest and the newest Kubernetes that the page names.
KUBERNETES: Final = ("1.27", "1.37")
SERVICE_HOST: Final = "quota-kafka-quota-proxy.kafka.svc"

LISTENER: Final = {
    "name": "clients",
    "bind": "0.0.0.0:9092",
    "bootstrap_servers": "k:9092",
    "broker_ports": "9093-9094",
}
TWO_LISTENERS: Final[dict[str, Any]] = {
    "replicas": 3,
    "service": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "annotations": {"a": "b"}},
    "podLabels": {"team": "streams"},
    "podAnnotations": {"c": "d"},
    "podSpec": {"nodeSelector": {"pool": "kafka"}, "tolerations": [{"key": "kafka", "operator": "Exists"}]},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "config": {
        "listeners": [
            LISTENER | {"advertised_host": "kafka.example.com"},
            {"name": "batch", "bind": "[::]:9192", "bootstrap_servers": "k:9092", "broker_ports": "9193-9193"},
        ],
        "quotas": [{"client-id": "etl", "producer_byte_rate": 10_485_760}],
    },
}
AUTOSCALED: Final[dict[str, Any]] = {
    "autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 4},
    "podDisruptionBudget": {"enabled": True, "maxUnavailable": "25%"},
    "networkPolicy": {"enabled": True, "clients": [{"podSelector": {"matchLabels": {"app": "etl"}}}]},
    "probes": {"startup": None, "readiness": {"periodSeconds": 7}},
    "extraVolumes": [
        {"name": "tls", "secret": {"secretName": "tls"}},
        {"name": "usage", "persistentVolumeClaim": {"claimName": "usage"}},
    ],
    "extraVolumeMounts": [{"name": "tls", "mountPath": "/etc/tls"}, {"name": "usage", "mountPath": "/usage"}],
}
SIDECAR: Final = {
    "mode": "sidecar",
    "config": {"listeners": [{"name": "clients", "bind": "0.0.0.0:9092", "upstream": "127.0.0.1:19092"}]},
}
VALUES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "two listeners": TWO_LISTENERS,
    "autoscaled": AUTOSCALED,
    "sidecar": SIDECAR,
    "page": yaml.safe_load(block("how-to/kubernetes.md", "yml", holding="# quota-values.yaml").text),
    "strimzi": yaml.safe_load(block("how-to/strimzi.md", "yml", holding="quotas_from: broker").text),
    "strimzi, TLS": yaml.safe_load(block("how-to/strimzi.md", "yml", holding="upstream_tls").text),
}
# A change of each section of the configuration.
CHANGES: Final[dict[str, Any]] = {
    "admin": {"bind": "127.0.0.1:9310", "metrics_bind": "0.0.0.0:9309"},
    "burst": "2s",
    "drain_timeout": "10s",
    "enforcement": "observe",
    "fair_call_queue": {"callqueue.capacity": 2048},
    "kafka": {"quota.window.num": 5},
    "listeners": [LISTENER | {"broker_ports": "9093-9095"}],
    "log": {"format": "text"},
    "max_buckets": 1000,
    "max_buffered": "256MiB",
    "max_throttle_time": "20s",
    "principals": {"exempt": ["root"]},
    "quotas": [{"client-id": "etl", "producer_byte_rate": "1MiB"}],
    "quotas_from": "broker",
    "replication": {"leader.replication.throttled.rate": "1MiB", "admin_client": {"bootstrap_servers": "k:9092"}},
    "request_time_scale": 2,
    "shaping": "paced",
    "store": {"directory": "quotas.d"},
    "testing": True,
    "upstream_bind": "127.0.0.1",
    "usage_log": {"directory": "usage"},
}
BASE: Final = {"listeners": [LISTENER]}


def template(
    directory: Path, values: dict[str, Any], *options: str, chart: Path = CHART, release: str = "quota"
) -> tuple[int, str, str]:
    (file := directory / "test-values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    return helm("template", release, chart, "--namespace", "kafka", "--values", file, *options)


def rendered(
    directory: Path, values: dict[str, Any], *options: str, chart: Path = CHART, release: str = "quota"
) -> dict[str, dict[str, Any]]:
    """Return the objects of a release by their kind, without its hooks. Each must be valid in Kubernetes."""
    options = options or ("--no-hooks",)
    status, text, errors = template(directory, values, *options, chart=chart, release=release)
    assert (status, errors) == (0, "")
    objects = {one["kind"]: one for one in yaml.safe_load_all(text) if one}
    assert len(objects) == text.count("\nkind: ")
    for one in objects.values():
        if not one["apiVersion"].startswith("monitoring.coreos.com/"):
            for version in KUBERNETES:
                kubernetes_validate.validate(one, version, strict=True)
    return objects


def loaded(objects: dict[str, dict[str, Any]]) -> Loaded:
    return load_bytes(objects["ConfigMap"]["data"]["proxy.yaml"].encode(), file="proxy.yaml")


def client_ports(config: ProxyConfig) -> list[int]:
    ports = []
    for listener in config.listeners:
        ports.append(listener.bind.port)
        if listener.cluster:
            ports += range(listener.cluster.first_port, listener.cluster.last_port + 1)
    return ports


def check_container(
    container: dict[str, Any], volumes: list[dict[str, Any]], objects: dict[str, dict[str, Any]]
) -> None:
    """Compare the container with the configuration, the Dockerfile and its volumes."""
    config = loaded(objects).config
    assert config.admin is not None
    assert config.admin.metrics_bind is not None
    assert ip_address(config.admin.bind.host).is_loopback
    assert not ip_address(config.admin.metrics_bind.host).is_loopback

    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports.pop("metrics") == config.admin.metrics_bind.port
    assert list(ports.values()) == client_ports(config)
    for probe, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
        asked = container.get(f"{probe}Probe", {"httpGet": {"path": path, "port": "metrics"}})
        assert asked["httpGet"] == {"path": path, "port": "metrics"}
    security = container["securityContext"]
    assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
    assert re.search(r"^USER [1-9]\d*$", DOCKERFILE, re.MULTILINE), "runAsNonRoot needs a numeric user"

    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["quota-proxy-config"] == re.findall(r"^WORKDIR (.+)$", DOCKERFILE, re.MULTILINE)[-1]
    assert list(mounts) == [volume["name"] for volume in volumes]
    assert volumes[0]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]


def test_chart_and_image_have_the_version_of_the_package(tmp_path: Path) -> None:
    package = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    (container,) = rendered(tmp_path, {})["Deployment"]["spec"]["template"]["spec"]["containers"]

    assert chart["version"] == chart["appVersion"] == package["version"]
    assert container["image"] == f"kafka-quota-proxy:{package['version']}"


@pytest.mark.parametrize("name", VALUES)
def test_lint_finds_no_fault(name: str, tmp_path: Path) -> None:
    (values := tmp_path / "values.yaml").write_text(yaml.safe_dump(VALUES[name]), encoding="utf-8")

    status, text, _ = helm("lint", "--strict", CHART, "--values", values)

    assert status == 0, text


@pytest.mark.parametrize("name", VALUES)
def test_container_and_configuration_agree(name: str, tmp_path: Path) -> None:
    objects = rendered(tmp_path, VALUES[name])

    assert loaded(objects).warnings == ()
    if VALUES[name].get("mode") == "sidecar":
        assert set(objects) == {"ConfigMap"}
        return
    deployment = objects["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    check_container(container, pod["volumes"], objects)
    labels = deployment["template"]["metadata"]["labels"]
    for selector in (deployment["selector"]["matchLabels"], objects["Service"]["spec"]["selector"]):
        assert selector.items() <= labels.items()
    stop_s = (
        int(container["lifecycle"]["preStop"]["exec"]["command"][1]) + loaded(objects).config.drain_timeout_ms / 1e3
    )
    assert stop_s + 6 < pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("name", [name for name in VALUES if name != "sidecar"])
def test_service_has_each_port_that_the_proxy_tells_clients(name: str, tmp_path: Path) -> None:
    objects = rendered(tmp_path, VALUES[name])
    config = loaded(objects).config
    ports = objects["Service"]["spec"]["ports"]
    service = objects["Service"]["metadata"]["name"]
    hosts = [listener.cluster.advertised_host for listener in config.listeners if listener.cluster]

    assert f"{service}.kafka.svc" == SERVICE_HOST
    assert hosts == (["kafka.example.com", SERVICE_HOST] if name == "two listeners" else [SERVICE_HOST])
    # A broker's port in the proxy's answers is the port on which the proxy listens, so the Service must not change it.
    assert [(port["port"], port["targetPort"]) for port in ports] == [(one, one) for one in client_ports(config)]
    assert len({port["name"] for port in ports}) == len(ports)


def test_notes_name_the_bootstrap_server_and_the_replicas(tmp_path: Path) -> None:
    (values := tmp_path / "values.yaml").write_text(yaml.safe_dump(TWO_LISTENERS), encoding="utf-8")
    dry_run = ("install", "quota", CHART, "--namespace", "kafka", "--dry-run=client")

    _, default, _ = helm(*dry_run)
    _, two_listeners, _ = helm(*dry_run, "--values", values)

    assert f"\n  {SERVICE_HOST}:9092\n" in default
    assert "replicas has quotas of its own" not in default
    assert "\n  kafka.example.com:9092\n" in two_listeners
    assert "a client may get up to 3 times its limit" in two_listeners


def test_values_of_pod_and_service_arrive(tmp_path: Path) -> None:
    objects = rendered(tmp_path, TWO_LISTENERS)
    deployment, service = objects["Deployment"]["spec"], objects["Service"]

    assert deployment["replicas"] == 3
    assert deployment["template"]["metadata"]["labels"]["team"] == "streams"
    assert deployment["template"]["metadata"]["annotations"]["c"] == "d"
    assert TWO_LISTENERS["podSpec"].items() <= deployment["template"]["spec"].items()
    assert (service["spec"]["type"], service["spec"]["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    assert service["metadata"]["annotations"] == {"a": "b"}
    (rule,) = loaded(objects).config.quotas
    assert rule.limits == {"producer_byte_rate": 10_485_760}


def test_prometheus_scrapes_the_pods_and_has_the_alert_rules(tmp_path: Path) -> None:
    objects = rendered(tmp_path, TWO_LISTENERS)
    rules = yaml.safe_load((REPOSITORY / "deploy" / "alerts.yaml").read_text(encoding="utf-8"))
    monitor, labels = objects["PodMonitor"]["spec"], objects["Deployment"]["spec"]["template"]["metadata"]["labels"]

    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["podMetricsEndpoints"] == [{"port": "metrics", "path": "/metrics"}]
    # The rules name the job.
    assert f'up{{job="{labels[monitor["jobLabel"]]}"}}' in json.dumps(rules).replace('\\"', '"')
    assert objects["PrometheusRule"]["spec"] == rules
    assert {objects[kind]["metadata"]["labels"]["release"] for kind in ("PodMonitor", "PrometheusRule")} == {
        "prometheus"
    }


def test_grafana_finds_the_dashboards() -> None:
    values = ("--set", "dashboards.enabled=true", "--show-only", "templates/dashboards.yaml")
    status, out, errors = helm("template", "quota", CHART, *values)
    assert status == 0, errors
    config_map = yaml.safe_load(out)

    kubernetes_validate.validate(config_map, KUBERNETES[-1], strict=True)
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    files = (REPOSITORY / "deploy" / "grafana").iterdir()
    assert config_map["data"] == {file.name: file.read_text(encoding="utf-8") for file in files}


def test_every_key_of_the_example_configuration_survives(tmp_path: Path) -> None:
    text = (REPOSITORY / "config" / "example.yaml").read_text(encoding="utf-8")
    # Helm rounds numbers above 2^53, such as Kafka's "no limit".
    text = re.sub(r"^  quota\.(producer|consumer)\.default: .*\n", "", text, flags=re.MULTILINE)
    text = text.replace("  # metrics_bind: 0.0.0.0:9309", "  metrics_bind: 0.0.0.0:9309")
    (file := tmp_path / "values.yaml").write_text(f"config:\n{re.sub('^', '  ', text, flags=re.MULTILINE)}")
    status, out, _ = helm("template", "quota", CHART, "--values", file, "--show-only", "templates/configmap.yaml")
    assert status == 0

    through_helm = load_bytes(yaml.safe_load(out)["data"]["proxy.yaml"].encode(), file="proxy.yaml").config

    assert _without_lines(through_helm) == _without_lines(load_bytes(text.encode(), file="proxy.yaml").config)


def _without_lines(config: ProxyConfig) -> ProxyConfig:
    return replace(
        config,
        quotas=tuple(replace(rule, source="") for rule in config.quotas),
        ip_quotas=tuple(replace(rule, source="") for rule in config.ip_quotas),
    )


def test_every_section_of_the_configuration_is_changed_below() -> None:
    assert set(CHANGES) == set(FILE.keys)


@pytest.mark.parametrize("key", CHANGES)
def test_pods_are_replaced_if_the_proxy_needs_a_restart(key: str, tmp_path: Path) -> None:
    before = rendered(tmp_path, {"config": BASE})
    after = rendered(tmp_path, {"config": BASE | {key: CHANGES[key]}})
    pods, files = ([one[kind] for one in (before, after)] for kind in ("Deployment", "ConfigMap"))

    assert loaded(before).config != loaded(after).config
    is_replaced = bool(needs_restart(loaded(before).config, loaded(after).config))
    assert (pods[0] != pods[1]) == is_replaced
    # Old pods keep their file: after a failed upgrade they start again with it.
    assert (files[0]["metadata"]["name"] != files[1]["metadata"]["name"]) == is_replaced


def test_the_proxy_checks_the_file_before_anything_changes(tmp_path: Path) -> None:
    objects = rendered(tmp_path, AUTOSCALED)
    hooks = rendered(tmp_path, AUTOSCALED, "--show-only", "templates/check.yaml")
    deployment, job = objects["Deployment"]["spec"]["template"]["spec"], hooks["Job"]["spec"]
    pod = job["template"]["spec"]
    (proxy,), (check,) = deployment["containers"], pod["containers"]

    for hook in hooks.values():
        assert hook["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        # Nothing stays, and Helm prints what the check has said.
        assert "hook-failed" in hook["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    assert hooks["Job"]["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-failed"
    # The file comes first: Helm runs hooks by weight, and those without one have 0.
    assert int(hooks["ConfigMap"]["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0
    assert hooks["ConfigMap"]["data"] == objects["ConfigMap"]["data"]
    assert pod["volumes"][0]["configMap"]["name"] == hooks["ConfigMap"]["metadata"]["name"]
    assert check["args"] == ["check", "proxy.yaml"]
    assert {key: check[key] for key in ("image", "securityContext", "volumeMounts")} == {
        key: proxy[key] for key in ("image", "securityContext", "volumeMounts")
    }
    assert pod["volumes"][1:] == [AUTOSCALED["extraVolumes"][0], {"name": "usage", "emptyDir": {}}]
    # Otherwise the Service would send clients to it.
    selector = objects["Service"]["spec"]["selector"]
    assert not selector.items() <= job["template"]["metadata"]["labels"].items()


def test_the_check_can_be_switched_off(tmp_path: Path) -> None:
    _, text, _ = template(tmp_path, {"check": {"enabled": False}})

    assert "helm.sh/hook" not in text


def test_the_number_of_replicas_is_left_to_others(tmp_path: Path) -> None:
    for values in ({}, {"replicas": None}, AUTOSCALED, AUTOSCALED | {"replicas": 3}):
        assert "replicas" not in rendered(tmp_path, values)["Deployment"]["spec"]
    assert rendered(tmp_path, {"replicas": 0})["Deployment"]["spec"]["replicas"] == 0


def test_pods_are_scaled_and_evicted_and_reached_as_the_values_say(tmp_path: Path) -> None:
    objects = rendered(tmp_path, AUTOSCALED)
    deployment, scaler = objects["Deployment"], objects["HorizontalPodAutoscaler"]["spec"]
    policy = objects["NetworkPolicy"]["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 4)
    assert "cpu" in container["resources"]["requests"], "without it there is no utilization"
    assert objects["PodDisruptionBudget"]["spec"]["maxUnavailable"] == "25%"
    for selector in (policy["podSelector"], objects["PodDisruptionBudget"]["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()
    clients, metrics = policy["ingress"]
    assert [port["port"] for port in clients["ports"]] == client_ports(loaded(objects).config)
    assert clients["from"] == AUTOSCALED["networkPolicy"]["clients"]
    assert metrics == {"from": [], "ports": [{"port": "metrics"}]}
    assert "startupProbe" not in container
    assert container["readinessProbe"]["periodSeconds"] == 7


def test_pods_spread_over_nodes_unless_the_values_say_how(tmp_path: Path) -> None:
    own: list[dict[str, Any]] = [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    template_of = rendered(tmp_path, {})["Deployment"]["spec"]["template"]
    (spread,) = template_of["spec"]["topologySpreadConstraints"]
    chosen = rendered(tmp_path, {"podSpec": {"topologySpreadConstraints": own}})["Deployment"]["spec"]["template"][
        "spec"
    ]

    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert spread["labelSelector"]["matchLabels"].items() <= template_of["metadata"]["labels"].items()
    assert chosen["topologySpreadConstraints"] == own


def test_every_name_is_valid_though_the_release_has_a_dot(tmp_path: Path) -> None:
    for release in ("quota.eu", "kafka-quota-proxy.eu", f"{'a' * 40}.eu-central-1"):
        hooks = rendered(tmp_path, {}, "--show-only", "templates/check.yaml", release=release)
        for one in [*rendered(tmp_path, {}, release=release).values(), *hooks.values()]:
            # RFC 1035's, which those of Services are.
            limit = 253 if one["kind"] == "ConfigMap" else 63
            assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", one["metadata"]["name"])
            assert len(one["metadata"]["name"]) <= limit


def ports(first: str, second: str | None = None, **admin: str) -> dict[str, Any]:
    """Return values with one or two listeners that have these ``broker_ports``."""
    listeners = [LISTENER | {"broker_ports": first}]
    if second is not None:
        listeners.append(LISTENER | {"name": "batch", "bind": "0.0.0.0:9192", "broker_ports": second})
    return {"config": {"listeners": listeners, "admin": admin}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (ports("9102-9093"), "broker_ports 9102-9093 of clients is no range"),
        (ports("65530-65536"), "broker_ports 65530-65536 of clients is no range"),
        (ports("9090-9093"), "port 9092 of clients is also a port of clients"),
        (ports("9093-9102", "9102-9103"), "port 9102 of batch is also a port of clients"),
        (ports("9300-9309"), "port 9308 of clients is also a port of admin.bind"),
        (ports("9309-9310"), "port 9309 of clients is also a port of admin.metrics_bind"),
        (ports("9093-9094", metrics_bind="0.0.0.0:9092"), "port 9092 of clients is also a port of admin.metrics_bind"),
        ({"config": {"listeners": [LISTENER | {"bind": "0.0.0.0:0"}]}}, "0 of clients is no port"),
        ({"autoscaling": {"enabled": True, "minReplicas": 5}}, "maxReplicas is less than minReplicas"),
    ],
)
def test_what_the_api_server_or_the_proxy_would_refuse_is_refused_before(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    status, _, errors = template(tmp_path, values)

    assert status == 1
    assert message in errors


def test_a_release_whose_service_could_have_no_name_is_refused(tmp_path: Path) -> None:
    status, _, errors = template(tmp_path, {}, release="1quota")

    assert status == 1
    assert "the release cannot be named 1quota" in errors


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"service": {"externalTrafficPolicy": "Local"}}, "externalTrafficPolicy"),
        ({"service": {"annotations": {"a": 1}}}, "service/annotations/a"),
        ({"podLabels": {"version": 1}}, "podLabels/version"),
        ({"podLabels": {"version": "a b"}}, "podLabels/version"),
        ({"podLabels": {"app.kubernetes.io/name": "other"}}, "app.kubernetes.io/name"),
        (
            {"podMonitor": {"enabled": True, "labels": {"app.kubernetes.io/instance": "other"}}},
            "app.kubernetes.io/instance",
        ),
        ({"podAnnotations": {"scrape": True}}, "podAnnotations/scrape"),
        ({"extraVolumes": [{"name": "quota-proxy-config", "emptyDir": {}}]}, "extraVolumes/0/name"),
        ({"probes": {"startup": {"httpGet": {}}}}, "httpGet"),
        ({"podDisruptionBudget": {"enabled": True, "maxUnavailable": "one"}}, "maxUnavailable"),
        ({"replica": 2}, "replica"),
        ({"config": {"quota": []}}, "quota"),
        (
            {"config": {"listeners": [{key: LISTENER[key] for key in LISTENER if key != "broker_ports"}]}},
            "broker_ports",
        ),
        ({"config": {"admin": {"metrics_bind": None}}}, "metrics_bind"),
        ({"service": {"type": "NodePort"}}, "service/type"),
        ({"podSpec": {"containers": []}}, "containers"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], named: str, tmp_path: Path) -> None:
    status, _, errors = template(tmp_path, values)

    assert status == 1
    assert "values don't meet the specifications of the schema" in errors
    assert named in errors


def test_container_joins_the_pod_of_another_chart(tmp_path: Path) -> None:
    (chart := tmp_path / "broker" / "templates").mkdir(parents=True)
    for name in ("Chart.yaml", "values.yaml", "templates/broker.yaml"):
        page = block("how-to/kubernetes.md", "yml", holding=f"# {name}\n")
        (chart.parent / name).write_text(page.text, encoding="utf-8")
    shutil.copytree(CHART, tmp_path / CHART.name)
    assert helm("dependency", "update", chart.parent)[0] == 0

    objects = rendered(tmp_path, {}, chart=chart.parent)

    assert set(objects) == {"ConfigMap", "Service", "StatefulSet"}
    assert objects["Service"]["metadata"]["name"] == objects["StatefulSet"]["spec"]["serviceName"]
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    broker, proxy = pod["containers"]
    check_container(proxy, pod["volumes"], objects)
    assert proxy["image"].endswith(f":{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}")
    assert "lifecycle" not in proxy
    metrics = {port["name"]: port["containerPort"] for port in proxy["ports"]}["metrics"]
    assert f"/127.0.0.1/{metrics})" in broker["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert loaded(objects).warnings == ()


def test_strimzi_page_admits_only_pods_of_the_chart(tmp_path: Path) -> None:
    kafka = yaml.safe_load(block("how-to/strimzi.md", "yml", holding="kind: Kafka\n").text)
    (listener,) = kafka["spec"]["kafka"]["listeners"]
    ((_, peer),) = listener["networkPolicyPeers"][0].items()
    objects = rendered(tmp_path, VALUES["strimzi"])
    user = yaml.safe_load(block("how-to/strimzi.md", "yml", holding="DescribeConfigs").text)
    tls = rendered(tmp_path, VALUES["strimzi, TLS"])
    secrets = {
        volume["name"]: volume["secret"]["secretName"]
        for volume in tls["Deployment"]["spec"]["template"]["spec"]["volumes"]
        if "secret" in volume
    }

    assert peer["matchLabels"].items() <= objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    (cluster,) = (one.cluster for one in loaded(objects).config.listeners if one.cluster)
    (bootstrap,) = cluster.bootstrap_servers
    assert str(bootstrap) == f"{kafka['metadata']['name']}-kafka-bootstrap:{listener['port']}"
    assert user["metadata"]["labels"] == {"strimzi.io/cluster": kafka["metadata"]["name"]}
    # Strimzi names the Secret of a user after it.
    source = VALUES["strimzi, TLS"]["config"]["quotas_from"]["broker"]
    assert secrets["user"] == user["metadata"]["name"] == source["sasl_username"]
    assert secrets["cluster-ca"] == f"{kafka['metadata']['name']}-cluster-ca-cert"
