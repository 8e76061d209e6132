"""The compiled wheel is built, installed and run with the Python of each Debian release that has one in question."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.artefacts.support.distributions import REPOSITORY, run
from tests.end_to_end.support.clients import Librdkafka, create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.proxy import Proxy

pytestmark = [pytest.mark.long, pytest.mark.timeout(7_200)]

_PACKAGES = "ca-certificates,gcc,libc6-dev,python3,python3-dev,python3-venv"
_BUILD = """
    set -e
    python3 -m venv /venv /builder
    cd /tmp
    KQP_COMPILE=1 /builder/bin/pip wheel --quiet --no-deps --wheel-dir /tmp/wheels /tmp/{sdist}
    /venv/bin/pip install --quiet "$(ls /tmp/wheels/*.whl)[demo]"
    ls /tmp/wheels
"""
_PINNED_WITHIN = {"PIP_CONSTRAINT": "/tmp/constraints.txt", "PIP_BUILD_CONSTRAINT": "/tmp/constraints.txt"}  # noqa: S108
# In a namespace of its own, so that no mount outlives the program.
_WITHIN = 'mount -t proc proc "$0/proc" && mount --bind "$1" "$0/mnt" && shift && exec chroot "$0" "$@"'


def _within(root: Path, shared: Path, *words: str) -> list[str]:
    return ["unshare", "--mount", "sh", "-c", _WITHIN, str(root), str(shared), *words]


@pytest.mark.parametrize(("suite", "minor"), [("bookworm", 11), ("trixie", 13), ("forky", 14)])
def test_compiled_wheel_works_with_the_python_of(
    suite: str, minor: int, sdist: Path, kafka: Kafka, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    # All scripts of Debian are links to that of sid, and a release that is newer than debootstrap has none.
    script = "/usr/share/debootstrap/scripts/sid"
    sites = run(["apt-get", "indextargets", "--format", "$(SITE)"]).split()  # the mirrors that this machine uses
    mirror = next(site for site in sites if "debian" in site)
    run(["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", suite, root, mirror, script])
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs")
    shutil.copy("/etc/resolv.conf", root / "etc")
    for file in (sdist, REPOSITORY / "constraints.txt"):
        shutil.copy(file, root / "tmp")
    built = run(_within(root, tmp_path, "sh", "-c", _BUILD.format(sdist=sdist.name)), pins=_PINNED_WITHIN)
    program = "/venv/bin/kafka-quota-proxy"
    demo = run(_within(root, tmp_path, program, "demo", "--seconds", "4"), statuses=(0, 1))
    topic, batch = create_topic(kafka), batch_of(64 * KIB)
    quotas = {"quotas": [{"client-id": "limited", "producer_byte_rate": 10_000}]}

    def command(file: Path) -> list[str]:
        return _within(root, file.parent, program, "run", f"/mnt/{file.name}")

    with Proxy(quotas, kafka, program=command) as proxy:
        client = Librdkafka(settings={})
        client.produce(proxy.address(), topic, client_id="free", count=10_000)
        client.consume(proxy.address(), topic, client_id="free", count=10_000)
        with raw_client(proxy.port(), client_id="limited") as limited:
            throttled = [limited.produce(topic, batch).throttle_time_ms for _ in range(2)]
        implementation = proxy.metrics().label_values("kafka_quota_proxy_build_info", "implementation")
        status = proxy.stop()

    assert f"-cp3{minor}-cp3{minor}-linux_" in built
    assert "producer: " in demo
    assert throttled[-1] > 1_000
    assert (implementation, status) == ({"compiled"}, 0)
