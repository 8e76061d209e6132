"""Tests where librdkafka is found, the error if it is missing, and how fast the mock cluster obeys."""

import importlib
import time
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.cli.demo.mock_cluster import (
    MockCluster,
    bundled_library,
    library_in_maps,
    load_librdkafka,
    missing_extra_message,
    require_extra,
)
from kafka_quota_proxy.proxy.cli.demo.workload import DemoError

MAPS = """\
7f1000000000-7f1000001000 r--p 00000000 08:01 1234                       /usr/lib/libc.so.6
7f2000000000-7f2000001000 rw-p 00000000 00:00 0
7f3000000000-7f3000001000 r-xp 00001000 08:01 5678                       /home/a b/site/librdkafka-0cb9.so.1
7f4000000000-7f4000001000 r--p 00000000 00:00 0                          [vdso]
"""


def test_the_loaded_library_is_found_under_a_path_with_spaces() -> None:
    assert library_in_maps(MAPS) == "/home/a b/site/librdkafka-0cb9.so.1"
    assert library_in_maps(MAPS.replace("librdkafka", "libother")) is None


@pytest.mark.parametrize(
    "place",
    [
        "confluent_kafka.libs/librdkafka-0cb9.so.1",  # where auditwheel puts it
        "confluent_kafka/.dylibs/librdkafka.1.dylib",  # where delocate puts it
    ],
)
def test_a_bundled_library_is_found_next_to_its_package(tmp_path: Path, place: str) -> None:
    package = tmp_path / "confluent_kafka"
    package.mkdir()
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).touch()

    assert bundled_library(package) == str(tmp_path / place)
    assert bundled_library(tmp_path) is None


def test_the_bundled_library_of_this_system_is_loaded() -> None:
    package = Path(str(importlib.import_module("confluent_kafka").__file__)).parent

    bundled = bundled_library(package)

    assert bundled == load_librdkafka()._name


def test_an_idle_mock_creates_topics_and_moves_leaders_at_once() -> None:
    """It would wait for up to a second for each, and the relay with it."""
    with MockCluster(brokers=2) as mock:
        began_s = time.monotonic()
        for number in range(5):
            time.sleep(0.05)
            mock.create_topic(f"topic-{number}", [1])
            time.sleep(0.05)
            mock.set_leader(f"topic-{number}", 0, 2)

        assert time.monotonic() - began_s < 3
    assert mock.leaders == {f"topic-{number}": [2] for number in range(5)}


def test_a_topic_that_exists_is_refused() -> None:
    with MockCluster(["topic"]) as mock, pytest.raises(DemoError, match="refuses topic topic: error 36"):
        mock.create_topic("topic", [1])


def test_the_error_of_a_missing_package_has_the_command_that_installs_it() -> None:
    with pytest.raises(DemoError) as caught:
        require_extra("aiokafka", "no_such_package_anywhere")

    assert str(caught.value) == (
        "the demo needs no_such_package_anywhere, which is not installed: "
        "pip install '.[demo]' in a checkout of kafka-quota-proxy"
    )
    on_musl = missing_extra_message("confluent_kafka", soabi="cpython-311-x86_64-linux-musl")
    assert "musl" in on_musl
    assert "pip install" not in on_musl
