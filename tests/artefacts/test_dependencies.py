"""The wheel works with the lowest and with the newest versions of the packages that it asks for.

So the ranges of pyproject.toml are true. What is tried is what each package is for; all other tests run with the
versions of constraints.txt.
"""

from __future__ import annotations

import re
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.artefacts.conftest import Builds
from tests.artefacts.support.distributions import PINNED, demo, installed, run
from tests.end_to_end.support.clients import Librdkafka, create_topic, end_offset
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.support.pages import block

_EXTRAS = {"testing", "demo"}


def _asked(wheel: Path) -> list[Requirement]:
    """Return what the wheel and its extras for users ask for."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        asked = BytesParser().parsebytes(archive.read(name)).get_all("Requires-Dist") or []
    return [one for one in map(Requirement, asked) if _is_for_users(one)]


def _lowest(wheel: Path) -> list[str]:
    """Return a pin for the lower bound of each package."""
    bounds = {(one.name, low.version) for one in _asked(wheel) for low in one.specifier if low.operator == ">="}
    return [f"{name}=={version}" for name, version in sorted(bounds)]


def _is_for_users(requirement: Requirement) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in _EXTRAS)


@pytest.fixture(scope="module", params=["lowest", "newest"])
def programs(request: pytest.FixtureRequest, builds: Builds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(request.param)
    pins = directory / "pins.txt"
    pins.write_text("\n".join(_lowest(builds.wheel) if request.param == "lowest" else []))
    wheel = f"{builds.wheel}[{','.join(sorted(_EXTRAS))}]"
    return installed(directory / "venv", wheel, "pytest", pins={**PINNED, "PIP_CONSTRAINT": str(pins)})


def test_every_package_is_asked_for_by_a_range(builds: Builds) -> None:
    bounds = {one.name: {bound.operator for bound in one.specifier} for one in _asked(builds.wheel)}

    assert len(bounds) >= 9
    assert {name: those for name, those in bounds.items() if those != {">=", "<"}} == {"tzdata": {">="}}  # dates


def test_demo_and_completion_work(programs: Path) -> None:
    assert "producer: " in demo(programs)
    assert "kafka-quota-proxy" in run([programs / "kafka-quota-proxy", "completion", "bash"])


def test_fixture_throttles_an_application(programs: Path, tmp_path: Path) -> None:
    first = block("how-to/test-throttling.md", "python", holding="def test_producer_waits_and_loses_nothing")
    (tmp_path / "test_application.py").write_text(first.text)

    assert "1 passed" in run([programs / "python", "-m", "pytest"], cwd=tmp_path)


def test_proxy_uses_each_of_them_in_front_of_a_real_kafka(programs: Path, kafka: Kafka) -> None:
    topic, used, batch = create_topic(kafka), create_topic(kafka), batch_of(64 * KIB)
    settings = {
        "quotas": [{"client-id": "limited", "producer_byte_rate": 10_000}],
        "principals": {"fold": [{"match": "^app-([a-z]+)-[0-9]+$", "to": r"app-\1"}]},
        "usage_log": {"kafka": {"bootstrap_servers": kafka.bootstrap_servers, "topic": used}, "interval": "1s"},
    }
    with Proxy(settings, kafka, program=lambda file: [programs / "kafka-quota-proxy", "run", file]) as proxy:
        Librdkafka(settings={}).produce(proxy.address(), topic, client_id="free", count=1_000)
        with raw_client(proxy.port(), client_id="limited") as limited:
            throttled = [limited.produce(topic, batch).throttle_time_ms for _ in range(2)]
        wait_until(lambda: end_offset(kafka, used) > 0, timeout_s=20, what="the usage log reaches its topic")
        errors = proxy.metrics().total("kafka_quota_proxy_internal_errors_total")
        table = run([programs / "kafka-quota-proxy", "top", "--once", "--url", f"http://{proxy.admin_address}"])
        status, log = proxy.stop(), proxy.file.with_name("proxy.log").read_text()

    assert throttled[-1] > 1_000
    assert "1 throttled" in table
    assert (errors, status) == (0, 0)
    assert re.findall(r"Traceback|deprecat", log) == []
