"""Reads the dashboards of ``deploy/grafana``, and asks a Prometheus their queries, as Grafana does."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.end_to_end.support.prometheus import SCRAPE_INTERVAL_S, Prometheus, Series

DIRECTORY: Final = Path(__file__).parents[3] / "deploy" / "grafana"
FILES: Final = tuple(sorted(DIRECTORY.glob("*.json")))
_VARIABLE: Final = re.compile(r"\$\{?([a-zA-Z_]\w*)\}?")
_SPECIAL: Final = re.compile(r"([\\^$*+?.()|{}\[\]])")


class Period(NamedTuple):
    """The time that a dashboard shows."""

    begin_s: float  # Unix time
    end_s: float
    step_s: float

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables that depend on the time."""
        # Grafana: at least four scrapes, so that a rate has samples even if one is missing.
        rate_s = max(self.step_s + SCRAPE_INTERVAL_S, 4 * SCRAPE_INTERVAL_S)
        return {"__rate_interval": f"{rate_s:g}s", "__range": f"{self.end_s - self.begin_s:.0f}s"}


def dashboard(name: str) -> dict[str, Any]:
    """Return the dashboard in a file, whose name is given without ``.json``."""
    found: dict[str, Any] = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    return found


def substituted(text: str, variables: Mapping[str, str]) -> str:
    """Return a query with the values of its variables. An unknown variable is left, as ``$1`` in ``label_replace``."""
    return _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), text)


def chosen(
    one: dict[str, Any], prometheus: Prometheus, given: Mapping[str, Sequence[str]] | None = None
) -> dict[str, str]:
    """Return the regular expression of each variable: ``given`` values, or all that its query finds."""
    variables: dict[str, str] = {}
    for variable in one["templating"]["list"]:
        if variable["type"] == "query":
            name = variable["name"]
            found = prometheus.label_values(substituted(variable["query"], variables))
            assert found, f"{one['uid']}: no value of {name}"
            values = (given or {}).get(name) or ([] if "allValue" in variable else found)
            quoted = [_SPECIAL.sub(r"\\\\\1", value) for value in values]
            variables[name] = f"({'|'.join(quoted)})" if quoted else variable["allValue"]
    return variables


def asked(target: dict[str, Any], variables: Mapping[str, str], period: Period, prometheus: Prometheus) -> list[Series]:
    """Return the series of a query, without values that are not numbers."""
    expr = substituted(target["expr"], {**variables, **period.variables})
    if target.get("instant"):
        found = prometheus.query(expr, at_s=period.end_s)
    else:
        found = prometheus.query_range(expr, begin_s=period.begin_s, end_s=period.end_s, step_s=period.step_s)
    numbers = [Series(one.labels, [pair for pair in one.values if not math.isnan(pair[1])]) for one in found]
    return [one for one in numbers if one.values]
