"""Builds a report as a single HTML file, which needs no network, has a dark mode, and is readable on a phone.

A report begins with a verdict and the main numbers. Sections follow, each of which answers one question. The module
``plots`` draws the figures, and ``entity_table`` the table that the script in ``report.js`` works with. The page runs
no other script and loads nothing.

``entity_table`` builds the table of entities, whose rows are data (JSON) in the page.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, Final, NamedTuple

# Matches characters that XML forbids, that break a line, or that change the direction of the text after them.
_NOT_SHOWN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_NOTES_SHOWN: Final = 8


class Section(NamedTuple):
    """A section of the report: a question as its heading, the answer in words, and figures or a table (HTML)."""

    title: str
    words: str
    body: str


def page(
    title: str,
    facts: Iterable[tuple[str, str]],
    sections: Iterable[Section],
    *,
    verdict: tuple[str, bool],
    words: str,
    notes: Sequence[str],
    warnings: Sequence[str] = (),
) -> str:
    """Return the HTML of a report.

    ``verdict`` is a sentence, and whether it is good news. It stands above everything else, and the sentences
    ``warnings`` below it. ``facts`` contains the main numbers with their
    meanings, the most important first. ``words`` is a paragraph about the source of the numbers and the next steps.
    ``notes`` contains a sentence for each fault of the log.
    """
    shown = "".join(f"<div><b>{text_of(number)}</b>{text_of(name)}</div>" for number, name in facts)
    body = "".join(f"<h2>{text_of(s.title)}</h2>{_paragraph(s.words)}{s.body}" for s in sections)
    script, (sentence, is_good) = _asset("report.js"), verdict
    # The plots have attributes with styles.
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}; base-uri 'none'; form-action 'none'\">"
        f"<title>{text_of(title)}</title><style>{_asset('report.css')}</style></head>\n"
        f'<body><main><h1>{text_of(title)}</h1><p class="verdict {"good" if is_good else "bad"}">'
        f'{text_of(sentence)}</p>{_warnings(warnings)}<div class="facts">{shown}</div>{_paragraph(words)}'
        f"{_notes(notes)}{body}</main><script>{script}</script></body></html>\n"
    )


@cache
def _asset(name: str) -> str:
    return files("kafka_quota_proxy.pipeline").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Return the hash by which the page's policy allows this script and no other."""
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, label: str, names: int = 1) -> str:
    """Return an HTML table.

    The first ``names`` columns contain names, and the others contain numbers. ``label`` is the name of the
    table for screen readers.
    """

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="name">{text_of(value)}</{tag}>' if at < names else f"<{tag}>{text_of(value)}</{tag}>"
            for at, value in enumerate(values)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    heads = f"<thead><tr>{cells('th', columns)}</tr></thead>"
    # A table that scrolls must be reachable by keyboard.
    place = f'<div class="wide" role="region" aria-label="{escape(shown(label))}" tabindex="0">'
    return f"{place}<table>{heads}<tbody>{lines}</tbody></table></div>"


def plots(figures: Iterable[str]) -> str:
    """Return the HTML that shows figures side by side, as many as fit on the screen."""
    return f'<div class="plots">{"".join(figures)}</div>'


def figure(name: str, words: str, svg: str) -> str:
    """Return the HTML of a plot, with its name and with a description that screen readers read out."""
    # The screen reader reads this label in place of the picture. Without it, it would read out the numbers at the axes.
    drawn = svg.replace("<svg", f'<svg role="img" aria-label="{escape(shown(f"{name}: {words}"))}"', 1)
    return f"<figure><figcaption><b>{text_of(name)}</b><span>{text_of(words)}</span></figcaption>{drawn}</figure>"


def keys(colours: Mapping[str, str]) -> str:
    """Return the HTML of a legend. ``colours`` maps CSS classes to the meanings of their colours."""
    shown = "".join(f'<span><i class="key {kind}"></i>{text_of(name)}</span>' for kind, name in colours.items())
    return f'<p class="keys">{shown}</p>'


def text_of(name: str) -> str:
    """Return a name as safe HTML. Escaping is needed, since clients choose their own names."""
    return escape(shown(name), quote=False)


def shown(name: str) -> str:
    """Replace each character of a name that is invisible, or would change the direction of the text, with U+FFFD."""
    return _NOT_SHOWN.sub("\ufffd", name)


def size(amount: float) -> str:
    """Return a number of bytes as text such as 12.3 MB, in powers of 1,000 like the sizes in the configuration."""
    for unit, factor in (("B", 1), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        # The rounded number decides about the unit, so that 999.6 kB are shown as 1 MB and not as 1e+03 kB.
        rounded = f"{amount / factor:.0f}" if factor == 1 else f"{amount / factor:.3g}"
        if abs(float(rounded)) < 1_000:
            return f"{rounded} {unit}"
    return f"{_digits(amount / 1e12)} TB"


def duration(ms: float) -> str:
    """Return a duration as text, such as 3.2 s, 14 min or 5.1 h."""
    for unit, factor in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= factor:
            return f"{_digits(ms / factor)} {unit}"
    return f"{ms:.0f} ms"


def share(part: float) -> str:
    """Return a share from 0 to 1 as text such as 0.5 %."""
    return f"{part * 100:.2g} %" if part < 0.995 else f"{part * 100:.0f} %"


def rate(bytes_per_s: float | None) -> str:
    """Return a rate as text such as 12.3 MB/s. The text is empty if there is none."""
    return "" if bytes_per_s is None else f"{size(bytes_per_s)}/s"


def _digits(number: float) -> str:
    return f"{number:.3g}" if number < 1_000 else f"{number:,.0f}"


def _paragraph(words: str) -> str:
    return f"<p>{text_of(words)}</p>" if words else ""


def _warnings(warnings: Sequence[str]) -> str:
    return "".join(f'<p class="warning" role="alert">{text_of(warning)}</p>' for warning in warnings)


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = [f"<li>{text_of(note)}</li>" for note in notes]
    first, rest = items[:_NOTES_SHOWN], items[_NOTES_SHOWN:]
    more = f"<details><summary>{len(rest)} more</summary><ul>{''.join(rest)}</ul></details>" if rest else ""
    return f"<ul>{''.join(first)}</ul>{more}"


_LONGEST: Final = 120


class Column(NamedTuple):
    """A column of the table. ``key`` is its name in the CSV file, and ``words`` says what it contains.

    ``form`` says how values look: entity (user and client-id), text, number, rate (bytes per second), time (ms), share
    (0 to 1). If ``is_chosen``, the page can show only the rows with
    one value of the column.
    """

    key: str
    title: str
    form: str
    words: str = ""
    is_chosen: bool = False


Value = str | float | tuple[str, str] | None
# A row of the table: the values by the keys of the columns. What has no column is not shown.
Line = Mapping[str, Any]


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
    values = [[line.get(column.key) for column in columns] for line in lines]
    document = {
        "name": name,
        "columns": [{"key": column.key, "form": column.form} for column in columns],
        "rows": [[_safe(value) for value in row] for row in values],
    }
    return (
        f"{_tools(columns, has_quotas=quotas is not None)}"
        '<div class="wide" role="region" aria-label="Entities" tabindex="0">'
        f'<table id="entities"><thead><tr>{heads}</tr></thead><tbody></tbody></table></div>'
        "<noscript><p>The rows need JavaScript.</p></noscript>"
        '<p class="scripted" hidden><output id="count" aria-live="polite"></output> '
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
