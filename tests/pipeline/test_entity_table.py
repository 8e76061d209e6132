"""The table of entities as data, with names that a client may choose."""

import json
import re

from kafka_quota_proxy.pipeline.report import Column, entity_table, label

COLUMNS = [
    Column("entity", "entity", "entity", "who <it> is"),
    Column("state", "limit is", "text", is_chosen=True),
    Column("limit", "limit", "rate"),
]
HOSTILE = '</script><!--<script>alert(1)</script><b onclick="x">&\u202e\u2028'


def data(table: str, name: str = "data") -> object:
    """Return the content of a script element with data, which ends where a browser ends it."""
    (found,) = re.findall(rf'<script type="application/json" id="{name}">(.*?)</script', table, re.IGNORECASE)
    return json.loads(found)


def test_names_are_data_and_never_markup() -> None:
    line = {"entity": (HOSTILE, "x"), "state": HOSTILE, "limit": 1.0, "hidden": HOSTILE}

    table = entity_table("t", COLUMNS, [line], quotas=HOSTILE)

    marked = HOSTILE.replace("\u202e", "\ufffd").replace("\u2028", "\ufffd")
    assert data(table) == {
        "name": "t",
        "columns": [{"key": one.key, "form": one.form} for one in COLUMNS],
        "rows": [[[marked, "x"], marked, 1.0]],
    }
    assert data(table, "quotas") == HOSTILE
    assert not re.search(r"<b |<!--", table)
    assert table.count("<script") == 2


def test_the_controls_are_hidden_without_a_script() -> None:
    table = entity_table("t", COLUMNS, [])

    assert table.count('class="tools scripted" hidden') == 1
    assert "<noscript>" in table
    assert 'id="by-state"' in table
    assert "save-quotas" not in table


def test_a_name_in_words() -> None:
    assert [label("a", "b"), label("", "b"), label("a", ""), label("", "")] == ["a / b", "b", "a", "(no name)"]
    assert label("x" * 121, "y" * 120) == f"{'x' * 119}… / {'y' * 120}"
