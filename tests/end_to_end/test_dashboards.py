"""A real Prometheus scrapes two proxies under load, and each query of each dashboard finds samples."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.end_to_end.support.dashboard_load import under_load
from tests.end_to_end.support.dashboards import FILES, Period, asked, chosen, dashboard
from tests.end_to_end.support.prometheus import Prometheus

pytestmark = pytest.mark.long

_LOAD_S: Final = 40


@pytest.fixture(scope="module")
def measured() -> Iterator[tuple[Prometheus, Period]]:
    """Prometheus, and the time of the load, which still runs."""
    with under_load(_LOAD_S + 30, away=True) as prometheus:
        begin_s = time.time()
        time.sleep(_LOAD_S)
        yield prometheus, Period(begin_s, begin_s + _LOAD_S, step_s=5)


def _without_default(target: dict[str, Any]) -> dict[str, Any]:
    """Return the query without the zero that it has where there are no samples."""
    return {**target, "expr": target["expr"].removesuffix(" or vector(0)")}


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_each_query_of_each_panel_finds_samples(name: str, measured: tuple[Prometheus, Period]) -> None:
    prometheus, period = measured
    one = dashboard(name)
    variables = chosen(one, prometheus)

    empty = [
        (panel["title"], target["expr"])
        for panel in one["panels"]
        for target in panel["targets"]
        if not asked(_without_default(target), variables, period, prometheus)
    ]

    assert empty == []


def test_dashboard_of_a_client_shows_only_this_client(measured: tuple[Prometheus, Period]) -> None:
    prometheus, period = measured
    one = dashboard("client")
    variables = chosen(one, prometheus, {"user": ["ANONYMOUS"], "client_id": ["etl"]})

    series = [
        found
        for panel in one["panels"]
        if panel["type"] == "timeseries"
        for target in panel["targets"]
        for found in asked(target, variables, period, prometheus)
    ]

    assert {(found.labels.get("user"), found.labels.get("client_id")) for found in series} == {("ANONYMOUS", "etl")}
