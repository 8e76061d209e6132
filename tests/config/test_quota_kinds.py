"""Tests the table of quota kinds, and that one row makes a new kind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, KIND_OF_KEY, QuotaKind, parse_limit


def test_keys_and_labels_are_unique() -> None:
    assert len(KIND_OF_KEY) == len({kind.label for kind in QuotaKind}) == len(QuotaKind)


def test_requests_are_charged_to_buckets_of_five_kinds() -> None:
    assert [kind.label for kind in BUCKET_KINDS] == ["produce", "fetch", "request", "request_rate", "mutation"]


def test_a_limit_is_parsed_in_the_unit_of_its_kind() -> None:
    assert [parse_limit("producer_byte_rate", "10MiB"), parse_limit("request_percentage", "12.5")] == [10_485_760, 12.5]
    for key, value in (("connections", "20"), ("connections", 0), ("request_rate", "10MiB"), ("request_rate", True)):
        with pytest.raises(UnitError):
            parse_limit(key, value)


def test_a_limit_is_written_as_it_is_parsed() -> None:
    for kind in QuotaKind:
        unit = kind.spec.unit
        for limit in (1, 1_000, 10_485_760, 12_345_678):
            written = unit.written(limit)
            assert parse_limit(kind.key, int(written) if unit.is_whole else written) == limit, (kind.key, written)


REPOSITORY = Path(__file__).parents[2]
LAST_ROW = "    CONNECTIONS = QuotaKindSpec("
ROW = """
    FRAMES = QuotaKindSpec(
        key="frame_rate",
        label="frames",
        charges="frames",
        unit=LimitUnit(
            parse=lambda text: float(str(text).removesuffix("k")) * 1_000,
            expected="frames per second",
            described=_counted("frames per second"),
        ),
        kafka_type=KafkaType.LONG,
        counter=Counter("frames_charged", "Frames that were charged."),
        kafka_metrics=KafkaMetrics("frame", "frame_rate", "frames per second", "frame_quota_value"),
    )
"""


def test_a_new_kind_is_one_row(tmp_path: Path) -> None:
    package = tmp_path / "kafka_quota_proxy"
    for name in ("config", "protocol", "proxy"):
        shutil.copytree(REPOSITORY / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    table = package / "config" / "quota_kinds.py"
    text = table.read_text()
    assert text.count(LAST_ROW) == 1
    table.write_text(text.replace(LAST_ROW, f"{ROW.strip(chr(10))}\n{LAST_ROW}"))

    run = subprocess.run(
        [sys.executable, "-m", "tests.support.made_up_kind", str(tmp_path)],
        cwd=REPOSITORY, env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}", "PYTHONSAFEPATH": "1"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert run.returncode == 0, run.stderr
    shown = json.loads(run.stdout)
    assert (shown["file"], shown["explain"]) == ({"frame_rate": 5_000.0}, 5_000)
    assert shown["usage_log"] == [["frames", 70, 5_000.0]]
    assert shown["store"] == {"frame_rate": 7.0}
    names = {line.partition("{")[0] for line in shown["metrics"]}
    assert names >= {
        "kafka_quota_proxy_quota_limit",
        "kafka_quota_proxy_frames_charged_total",
        "kafka_server_frame_frame_rate",
        "kafka_server_frame_throttle_time",
        "kafka_server_frame_frame_quota_value",
    }


def test_the_documentation_has_a_row_for_each_kind() -> None:
    page = (REPOSITORY / "docs" / "reference" / "quotas.md").read_text()
    for kind in QuotaKind:
        spec = kind.spec
        entity = "address" if spec.limits_ips else "user, client-id"
        owner = "this proxy's own" if spec.kafka_type is None else "Kafka's"
        row = f"| `{spec.key}` | {spec.unit.expected} | {spec.charges} | {entity} | {owner} | `{spec.label}` |"
        assert row in page.splitlines(), f"docs/reference/quotas.md lacks the row {row}"
