"""Tests the limit of open files and the warnings at the start. All else is tested in ``tests/end_to_end``."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.cli.run import _raise_file_limit

_LINUX_MOST = 1_048_576
_MACOS_MOST = 10_240
_MACOS_UNLIMITED = (1 << 63) - 1


@pytest.mark.parametrize(
    ("soft", "hard", "most", "raised"),
    [
        (1_024, 4_096, _LINUX_MOST, 4_096),
        (256, _MACOS_UNLIMITED, _MACOS_MOST, _MACOS_MOST),
        (20_000, _MACOS_UNLIMITED, _MACOS_MOST, 20_000),
        (256, 1_024, 256, 256),
    ],
)
def test_limit_of_open_files_is_raised_as_far_as_the_system_allows(
    soft: int, hard: int, most: int, raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = (soft, hard)

    def setrlimit(_: int, wanted: tuple[int, int]) -> None:
        nonlocal limits
        if wanted[0] > most:
            raise ValueError("current limit exceeds maximum limit")
        limits = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", setrlimit)

    _raise_file_limit()

    assert limits == (raised, hard)


def test_every_line_of_a_run_is_json_and_a_warning_about_the_file_has_fields(tmp_path: Path) -> None:
    config = tmp_path / "proxy.yaml"
    config.write_text(
        "listeners:\n"
        "  - {name: clients, bind: 127.0.0.1:0, upstream: 127.0.0.1:1}\n"
        "quotas:\n"
        "  - {user: alice, producer_byte_rate: 10}\n"
        "log: {format: json, level: warning}\n"
    )
    words = [sys.executable, "-m", "kafka_quota_proxy.proxy", "run", str(config)]

    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        ready = proxy.stdout.readline()
        proxy.terminate()
        out, err = proxy.communicate(timeout=60)

    lines = [json.loads(line) for line in (ready + out + err).splitlines()]
    assert lines[0].keys() == {"time", "level", "logger", "message"}
    assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+ \(clients\) -> 127\.0\.0\.1:1", lines[0]["message"])
    (warning,) = [line for line in lines if line.get("event") == "config_fault"]
    fields = ("file", "line", "key", "severity")
    assert [warning[key] for key in fields] == [str(config), 4, "quotas[0].producer_byte_rate", "warning"]
