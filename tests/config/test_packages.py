"""Packages that a file needs: a missing one is a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

from kafka_quota_proxy.config.load import load, load_bytes

LISTENERS = "listeners: [{name: clients, bind: 127.0.0.1:9092, upstream: 127.0.0.1:19092, node_id: 1}]\n"
TOPIC = f"{LISTENERS}usage_log:\n  interval: 1s\n  kafka: {{bootstrap_servers: 127.0.0.1:9092}}\n"


@pytest.fixture
def without_aiokafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extra is not installed."""
    monkeypatch.setattr(
        "kafka_quota_proxy.config.packages.find_spec", lambda name: None if name == "aiokafka" else object()
    )


@pytest.mark.usefixtures("without_aiokafka")
def test_a_topic_without_aiokafka_is_a_warning_that_says_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TOPIC)

    (warning,) = load(path).warnings

    assert str(warning) == (
        f"{path}:4: usage_log.kafka: warning: needs aiokafka, which is not installed here; the proxy does not start "
        "without it: pip install 'kafka-quota-proxy[usage-topic]'"
    )


@pytest.mark.usefixtures("without_aiokafka")
@pytest.mark.parametrize("value", ["kafka://k:9092/store", "{kafka: {bootstrap_servers: 'k:9092'}}"])
def test_a_quota_topic_without_aiokafka_is_a_warning(tmp_path: Path, value: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"{LISTENERS}quotas_from: {value}\n")

    (warning,) = load(path).warnings

    assert str(warning).startswith(f"{path}:2: quotas_from: warning: needs aiokafka, which is not installed here")


@pytest.mark.usefixtures("without_aiokafka")
@pytest.mark.parametrize(
    "usage_log",
    ["", "usage_log: {directory: usage}\n", "quotas_from: broker\n", "quotas_from: {broker: {every: 2s}}\n"],
)
def test_a_file_without_topics_has_no_warning_about_packages(tmp_path: Path, usage_log: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(LISTENERS + usage_log)

    assert load(path).warnings == ()


@pytest.mark.usefixtures("without_aiokafka")
def test_bytes_alone_are_not_compared_with_the_machine() -> None:
    assert load_bytes(TOPIC.encode(), file="c.yaml").warnings == ()


def test_an_installed_package_is_no_warning_and_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TOPIC)
    program = (
        "import sys\n"
        "from proxy.__main__ import main\n"
        f"status = main(['check', {str(path)!r}])\n"
        "sys.exit('imported' if 'aiokafka' in sys.modules else status)\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
