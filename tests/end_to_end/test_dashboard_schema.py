"""Grafana's own schemas accept the dashboards: a strict reader that Grafana generates from them, in Go."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.end_to_end.support.dashboards import FILES

pytestmark = pytest.mark.long

_SOURCES: Final = Path(__file__).parent / "grafana_schema"


def check(*files: Path) -> tuple[int, str]:
    ended = subprocess.run(
        ["go", "run", ".", *files], cwd=_SOURCES, capture_output=True, text=True, timeout=300, check=False
    )
    return ended.returncode, ended.stdout


def test_schemas_accept_each_dashboard() -> None:
    assert len(FILES) == 5
    assert check(*FILES) == (0, "")


def test_schemas_refuse_what_grafana_does_not_know(tmp_path: Path) -> None:
    file = tmp_path / "dashboard.json"
    one = json.loads(FILES[0].read_text(encoding="utf-8"))
    one["panels"][0]["options"]["colour"] = "red"
    one["panels"][1]["targets"][0]["query_text"] = "up"
    file.write_text(json.dumps(one))

    status, faults = check(file)

    assert status == 1
    assert faults.splitlines()[1:] == [
        "panels[0].options.Options: unexpected field 'colour'",
        "panels[1].targets[0].Dataquery: unexpected field 'query_text'",
    ]
