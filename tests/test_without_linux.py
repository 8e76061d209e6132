"""The program works on a system that lacks what only Linux has. On macOS itself these tests do not run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wheels import REPOSITORY

WITHOUT_LINUX = Path(__file__).parent / "support" / "without_linux"
OF_THE_SYSTEM = re.compile(
    r"^ *(import|from) (ctypes|errno|fcntl|os|resource|select|signal|socket|ssl|time)\b", re.MULTILINE
)
CLIENTS = """
import os, select, socket

import confluent_kafka
from kafka_quota_proxy.testing import ThrottlingProxy

assert not any((hasattr(os, "splice"), hasattr(select, "epoll"), hasattr(socket, "TCP_KEEPIDLE")))
with ThrottlingProxy(quotas=[{"client-id": "slow", "producer_byte_rate": "12KiB"}]) as proxy:
    proxy.next(2, api="Produce", throttle_time_ms=300, client_id="app")
    for client_id in ("app", "slow"):
        producer = confluent_kafka.Producer({"bootstrap.servers": proxy.bootstrap_servers, "client.id": client_id})
        for number in range(3):
            producer.produce("orders", bytes(50_000))
            assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": proxy.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    read = [consumer.poll(20) for _ in range(6)]
    consumer.close()
    assert [len(message.value()) for message in read] == [50_000] * 6
    print(proxy.observed("app").throttle_time_ms, len(proxy.observed("slow")))
"""


def test_clients_are_throttled_without_what_only_linux_has() -> None:
    environment = os.environ | {"PYTHONPATH": f"{WITHOUT_LINUX}{os.pathsep}{REPOSITORY}"}

    ran = subprocess.run([sys.executable, "-c", CLIENTS], env=environment, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    throttled_ms, slow = map(int, ran.stdout.split())
    assert throttled_ms == 600
    assert slow >= 1


@pytest.mark.kafka
def test_no_module_uses_names_that_python_has_not_on_macos(tmp_path: Path) -> None:
    """The stubs of Python's own modules, which mypy has, say which names there are on which system."""
    modules = [
        path.relative_to(REPOSITORY)
        for folder in (REPOSITORY / "kafka_quota_proxy").iterdir()
        for path in folder.rglob("*.py")
        if OF_THE_SYSTEM.search(path.read_text(encoding="utf-8"))
    ]
    # Only these modules are checked, and nothing that they import, because the whole program takes a minute.
    words = ["--platform", "darwin", "--follow-imports", "skip", "--cache-dir", str(tmp_path), *map(str, modules)]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    missing = re.findall(r"^(.+?):\d+: error: Module has no attribute", checked.stdout, re.MULTILINE)
    assert missing == []
