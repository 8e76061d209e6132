"""The files in deploy/grafana are what deploy/dashboards writes, and their parts fit together."""

import json
import re
from itertools import combinations
from typing import Any

import pytest

from deploy.dashboards.__main__ import DIRECTORY, files

FILES = sorted(DIRECTORY.glob("*.json"))
DASHBOARDS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FILES}
# The variables that Grafana itself has.
BUILT_IN = {"__rate_interval", "__range", "__url_time_range", "__data"}


def _strings(part: Any) -> list[str]:  # noqa: ANN401
    """Return all texts within a part of a dashboard."""
    if isinstance(part, str):
        return [part]
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [text for one in parts for text in _strings(one)]


def _cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    """Return the cells of the grid that a panel covers."""
    at = panel["gridPos"]
    return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}


def test_the_files_are_what_the_program_writes() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FILES} == files()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_a_place_and_an_id_of_their_own(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [(a["title"], b["title"]) for a, b in combinations(panels, 2) if _cells(a) & _cells(b)] == []
    assert max(x for panel in panels for x, _ in _cells(panel)) == 23


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_a_description_and_queries_of_the_chosen_data_source(name: str) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}

    for panel in DASHBOARDS[name]["panels"]:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        assert all(one["datasource"] == chosen for one in (panel, *panel["targets"])), panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), panel["title"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_variable_is_defined_before_it_is_used_and_used(name: str) -> None:
    one = DASHBOARDS[name]
    defined: set[str] = set()

    def used(part: Any) -> set[str]:  # noqa: ANN401
        return {found for text in _strings(part) for found in re.findall(r"\$\{?([a-zA-Z_]\w*)", text)} - BUILT_IN

    for variable in one["templating"]["list"]:
        assert used([variable["query"], variable.get("datasource")]) <= defined
        defined.add(variable["name"])
    assert used(one["panels"]) == defined


def test_each_link_leads_to_a_dashboard_and_sets_its_variables() -> None:
    by_uid = {one["uid"]: one for one in DASHBOARDS.values()}
    links = [text for one in DASHBOARDS.values() for text in _strings(one["panels"]) if text.startswith("/d/")]

    assert links != []
    for link in links:
        uid, _, parameters = link.removeprefix("/d/").partition("?")
        wanted = set(re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", parameters))
        assert {a or b for a, b in wanted} == {one["name"] for one in by_uid[uid]["templating"]["list"]}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_list_of_links_has_all_dashboards(name: str) -> None:
    (link,) = DASHBOARDS[name]["links"]

    assert link["includeVars"]
    assert link["keepTime"]
    assert all(set(link["tags"]) <= set(one["tags"]) for one in DASHBOARDS.values())
