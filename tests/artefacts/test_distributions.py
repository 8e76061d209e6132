"""Both wheels work in an empty environment, beside nothing of this checkout."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.artefacts.conftest import Builds
from tests.artefacts.support.distributions import demo, installed, run
from tests.end_to_end.support.clients import Librdkafka, create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.proxy import Proxy

_QUOTAS = {"quotas": [{"client-id": "limited", "producer_byte_rate": 10_000}]}


@pytest.fixture(scope="module", params=["wheel", "compiled wheel"])
def programs(request: pytest.FixtureRequest, builds: Builds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the installed programs."""
    artefact = {"wheel": builds.wheel, "compiled wheel": builds.compiled_wheel}[request.param]
    return installed(tmp_path_factory.mktemp("environment") / "venv", f"{artefact}[demo]")


@pytest.fixture
def implementation(request: pytest.FixtureRequest) -> str:
    return "compiled" if request.node.callspec.params["programs"] == "compiled wheel" else "python"


def test_demo_shows_throttled_clients(programs: Path) -> None:
    shown = json.loads(demo(programs, "--json"))

    assert len(shown) == 2
    assert all(client["throttle_time_ms"] > 0 for client in shown.values()), shown


def test_check_accepts_what_init_writes(programs: Path, tmp_path: Path) -> None:
    run([programs / "kafka-quota-proxy", "init", "proxy.yaml"], cwd=tmp_path)

    assert run([programs / "kafka-quota-proxy", "check", "proxy.yaml"], cwd=tmp_path).startswith("proxy.yaml: valid")


def test_run_limits_a_client_of_a_real_kafka(programs: Path, kafka: Kafka, implementation: str) -> None:
    topic, batch = create_topic(kafka), batch_of(64 * KIB)
    with Proxy(_QUOTAS, kafka, program=lambda file: [programs / "kafka-quota-proxy", "run", file]) as proxy:
        client = Librdkafka(settings={})
        client.produce(proxy.address(), topic, client_id="free", count=1_000)
        client.consume(proxy.address(), topic, client_id="free", count=1_000)
        with raw_client(proxy.port(), client_id="limited") as limited:
            throttled = [limited.produce(topic, batch).throttle_time_ms for _ in range(2)]
        built = proxy.metrics().label_values("kafka_quota_proxy_build_info", "implementation")
        status = proxy.stop()

    assert throttled[-1] > 1_000
    assert built == {implementation}
    assert status == 0


def test_wheels_say_for_which_python_they_are(builds: Builds) -> None:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"

    assert builds.wheel.name.endswith("-py3-none-any.whl")
    assert f"-{python}-{python}-linux_" in builds.compiled_wheel.name
