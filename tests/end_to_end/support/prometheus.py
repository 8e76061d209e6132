"""Runs a real Prometheus, which scrapes every second unless told otherwise, and asks it."""

from __future__ import annotations

import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import yaml

from tests.end_to_end.support.processes import HarnessError, Process, free_port, scratch, wait_until
from tests.support.promtool import program

RULES: Final = Path(__file__).parents[3] / "deploy" / "alerts.yaml"
JOB: Final = "kafka-quota-proxy"
SCRAPE_INTERVAL_S: Final = 1
# As Grafana has them: label_values(metric, label), with a selector in place of the metric.
_LABEL_VALUES: Final = re.compile(r"label_values\((.+), (\w+)\)")


class Series(NamedTuple):
    """One series of an answer: its labels, and its values by Unix time."""

    labels: Mapping[str, str]
    values: Sequence[tuple[float, float]]


class Prometheus:
    """A Prometheus with the rules of ``deploy/alerts.yaml``, which runs during a ``with`` block."""

    def __init__(self, targets: Sequence[str], *, scrape_interval_s: int = SCRAPE_INTERVAL_S) -> None:
        self._targets = list(targets)
        self._scrape_interval_s = scrape_interval_s
        self._port = free_port()

    def __enter__(self) -> Self:
        self._scratch = scratch("prometheus")
        directory = self._scratch.__enter__()
        interval = f"{self._scrape_interval_s}s"
        config = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [RULES.name],
            "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": self._targets}]}],
        }
        shutil.copy(RULES, directory)
        (file := directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        options = [f"--config.file={file}", f"--storage.tsdb.path={directory / 'data'}"]
        command = [program("prometheus"), *options, f"--web.listen-address=127.0.0.1:{self._port}"]
        self._process = Process(command, log=directory / "prometheus.log")
        try:
            wait_until(self._is_ready, timeout_s=30, what="Prometheus is ready")
        except HarnessError as error:
            error.add_note(self._process.log_tail())
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._scratch.__exit__(None, None, None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def query(self, expr: str, *, at_s: float) -> list[Series]:
        """Return the values of an expression at a time."""
        return _series(self._get("query", query=expr, time=str(at_s)))

    def query_range(self, expr: str, *, begin_s: float, end_s: float, step_s: float) -> list[Series]:
        """Return the values of an expression between two times."""
        return _series(self._get("query_range", query=expr, start=str(begin_s), end=str(end_s), step=str(step_s)))

    def label_values(self, query: str) -> list[str]:
        """Return the values of a label, for a query of a variable in Grafana's form."""
        found = _LABEL_VALUES.fullmatch(query)
        assert found is not None, query
        values: list[str] = self._get(f"label/{found[2]}/values", **{"match[]": found[1]})
        return values

    def _get(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def _is_ready(self) -> bool:
        if not self._process.is_running:
            raise HarnessError(f"Prometheus: exit status {self._process.exit_status}")
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
        return False


def _series(data: dict[str, Any]) -> list[Series]:
    return [
        Series(one["metric"], [(at_s, float(text)) for at_s, text in one.get("values") or [one["value"]]])
        for one in data["result"]
    ]
