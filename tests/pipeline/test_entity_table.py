"""The table of entities as data and as plain HTML, with names that a client may choose."""

import json
import re

import pytest

from kafka_quota_proxy.pipeline.report import Column, Line, entity_table, label, text

COLUMNS = [
    Column("entity", "entity", "entity", "who <it> is"),
    Column("state", "limit is", "text", is_chosen=True),
    Column("limit", "limit", "rate"),
    Column("reached", "reached", "weeks"),
]
HOSTILE = '</script><!--<script>alert(1)</script><b onclick="x">&\u202e\u2028'


def data(table: str, name: str = "data") -> object:
    """Return the content of a script element with data, which ends where a browser ends it."""
    (found,) = re.findall(rf'<script type="application/json" id="{name}">(.*?)</script', table, re.IGNORECASE)
    return json.loads(found)


def test_names_are_data_and_never_markup() -> None:
    line = {"entity": (HOSTILE, "x"), "state": HOSTILE, "limit": 1.0, "reached": (None, HOSTILE), "hidden": HOSTILE}

    table = entity_table("t", COLUMNS, [line], quotas=HOSTILE)

    marked = HOSTILE.replace("\u202e", "\ufffd").replace("\u2028", "\ufffd")
    assert data(table) == {
        "name": "t",
        "columns": [{"key": one.key, "form": one.form} for one in COLUMNS],
        "rows": [[[marked, "x"], marked, 1.0, [None, marked]]],
    }
    assert data(table, "quotas") == HOSTILE
    assert not re.search(r"<b |<!--", table)
    assert table.count("<script") == 2


def test_the_plain_table_has_the_first_rows() -> None:
    lines: list[Line] = [
        {"entity": ("a", f"c{at}"), "state": "too tight" if at else "fits", "limit": 1_500.0} for at in range(201)
    ]

    table, few = entity_table("t", COLUMNS, lines), entity_table("t", COLUMNS, lines[:200])

    assert table.count("<tr>") == 201
    assert '<td class="entity">a / c0</td><td class="text">fits</td><td class="rate">1.5 kB/s</td>' in table
    assert table.count('<td class="text bad">too tight</td>') == 199
    assert "The first 200 of 201 rows." in table
    assert '<p id="rest"></p>' in few
    # Without a script, the controls would do nothing.
    assert table.count('class="tools scripted" hidden') == 1
    assert 'id="by-state"' in table
    assert "save-quotas" not in table


@pytest.mark.parametrize(
    ("value", "form", "words"),
    [
        (None, "rate", ""),
        (("a", ""), "entity", "a"),
        (("x" * 121, "y" * 120), "entity", f"{'x' * 119}… / {'y' * 120}"),
        ("x" * 5_000, "text", f"{'x' * 119}…"),
        (1_234, "number", "1,234"),
        (12_345_678.0, "rate", "12.3 MB/s"),
        (0, "time", "0 ms"),
        (0.005, "share", "0.5 %"),
        (0.996, "share", "100 %"),
        (12.4, "percent", "+12 %"),
        (-571.0, "percent", "−100 %"),
        ((3.2, "in 3 weeks"), "weeks", "in 3 weeks"),
    ],
)
def test_values_as_text(value: object, form: str, words: str) -> None:
    assert text(value, form) == words


def test_a_name_in_words() -> None:
    assert [label("a", "b"), label("", "b"), label("a", ""), label("", "")] == ["a / b", "b", "a", "(no name)"]
