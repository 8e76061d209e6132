"""Builds the table of entities in a report, which a script in the page sorts, filters and saves as CSV.

The rows are data (JSON) in the page. Without the script, the page shows the first rows as a plain table. This module
does no I/O and needs no Spark.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kafka_quota_proxy.pipeline.report import duration, rate, share, shown, text_of

# The number of rows that the page has without its script.
PLAIN_ROWS: Final = 200
_LONGEST: Final = 120
# A longer text is broken into lines.
_ONE_LINE: Final = 24
_BAD: Final = "too tight"


class Column(NamedTuple):
    """A column of the table. ``key`` is its name in the CSV file, and ``words`` says what it contains.

    ``form`` says how values look: entity (user and client-id), text, number, rate (bytes per second), time (ms), share
    (0 to 1), percent, or weeks (a number to sort by and a text). If ``is_chosen``, the page can show only the rows with
    one value of the column.
    """

    key: str
    title: str
    form: str
    words: str = ""
    is_chosen: bool = False


Value = str | float | tuple[str, str] | tuple[float | None, str] | None
Line = tuple[Value, ...]


def label(user: str, client_id: str) -> str:
    """Return the user and client-id of an entity as one text, in which long names are cut."""
    return " / ".join(_cut(part) for part in (user, client_id) if part) or "(no name)"


def entity_table(name: str, columns: Sequence[Column], lines: Sequence[Line], *, quotas: str | None = None) -> str:
    """Return the HTML of the table, with its controls and its data.

    ``name`` is the name of the CSV file without its ending. ``quotas`` is the text of the file quotas.yaml, if the page
    offers one.
    """
    heads = "".join(f'<th scope="col" class="{one.form}">{text_of(one.title)}</th>' for one in columns)
    words = "".join(f"<dt>{text_of(one.title)}</dt><dd>{text_of(one.words)}</dd>" for one in columns if one.words)
    rows = "".join(f"<tr>{_cells(columns, line)}</tr>" for line in lines[:PLAIN_ROWS])
    rest = f"The first {PLAIN_ROWS} of {len(lines):,} rows." if len(lines) > PLAIN_ROWS else ""
    document = {
        "name": name,
        "columns": [{"key": column.key, "form": column.form} for column in columns],
        "rows": [[_safe(value) for value in line] for line in lines],
    }
    return (
        f"{_tools(columns, has_quotas=quotas is not None)}"
        '<div class="wide" role="region" aria-label="Entities" tabindex="0">'
        f'<table id="entities"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p id="rest">{rest}</p><p class="scripted" hidden><output id="count" aria-live="polite"></output> '
        '<button type="button" id="more">Show 100 more</button></p>'
        f"<details><summary>What the columns say</summary><dl>{words}</dl></details>"
        f"{_data('data', document)}{_data('quotas', quotas) if quotas is not None else ''}"
    )


def _tools(columns: Sequence[Column], *, has_quotas: bool) -> str:
    """Return the HTML of the controls. They are hidden, and the script shows them."""
    choices = "".join(
        f'<label>{text_of(one.title.capitalize())}<select id="by-{one.key}"><option value="">all</option>'
        "</select></label>"
        for one in columns
        if one.is_chosen
    )
    quotas = '<button type="button" id="save-quotas">Save quotas.yaml</button>' if has_quotas else ""
    return (
        '<div class="tools scripted" hidden><label>Find a name, a team or a rule<input id="find" type="search" '
        f'autocomplete="off" spellcheck="false"></label>{choices}'
        f'<button type="button" id="save-table">Save these rows as CSV</button>{quotas}</div>'
    )


def _cells(columns: Sequence[Column], line: Line) -> str:
    cells = []
    for column, value in zip(columns, line, strict=True):
        words = text(value, column.form)
        kind = column.form + " bad" * (words == _BAD) + " long" * (column.form == "text" and len(words) > _ONE_LINE)
        cells.append(f'<td class="{kind}">{text_of(words)}</td>')
    return "".join(cells)


def text(value: Any, form: str) -> str:  # noqa: ANN401  (the form says of which type)
    """Return a value of the table as text. The script of the page does the same."""
    if value is None:
        return ""
    match form:
        case "entity":
            return label(*value)
        case "number":
            return f"{value:,}"
        case "rate":
            return rate(value)
        case "time":
            return duration(value)
        case "share":
            return share(value)
        case "percent":
            # A fall of more than 100 % means that the entity disappears.
            return f"{max(value, -100):+.0f} %".replace("-", "−")
        case "weeks":
            return str(value[1])
    return _cut(value)


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _safe(value: Value) -> Value | list[Any]:
    """Return a value for the script, in which characters that are not shown are replaced."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, tuple):
        return [shown(part) if isinstance(part, str) else part for part in value]
    # Three digits are shown, and a number with 17 makes the page larger.
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _data(name: str, document: object) -> str:
    # The text of a script element ends at the first "</script", and "<!--" changes how it ends.
    written = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{written}</script>'
