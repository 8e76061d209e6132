"""Builds a report as a single HTML file, which needs no network, has a dark mode, and is readable on a phone.

A report begins with the main numbers. Sections follow, each of which answers one question. The module ``plots`` draws
the figures.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

# The colours can be told apart on white, on black, and with colour blindness (after Okabe and Ito).
_CSS: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #59626c; --paper: #fff; --line: #8885; --use: #0072b2;
        --limit: #d55e00 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e6ea; --faint: #a2abb5; --paper: #14171b; --use: #56b4e9; --limit: #ff9248 } }
* { box-sizing: border-box }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
       max-width: 70rem; padding: 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0 1rem }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 3rem 0 .25rem }
p, ul { max-width: 46rem; margin: .4rem 0 } ul { padding-left: 1.2rem } a { color: var(--use) }
.warning { border-left: 4px solid var(--limit); padding: .1rem 0 .1rem .8rem; font-weight: 600 }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 13rem), 1fr)); gap: 1rem 2rem;
         margin: 0 0 1rem; padding: 1rem 0; border: solid var(--line); border-width: 1px 0 }
.facts b { display: block; font-size: 1.7rem; line-height: 1.2 }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.5rem 2rem }
figure { margin: .75rem 0 0; max-width: 36rem } figcaption { font-size: .9rem; line-height: 1.35 }
figcaption span { color: var(--faint); display: block }
svg { display: block; width: 100%; height: auto }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .35em 0 0; background: var(--ink) }
.key.use { background: var(--use) } .key.limit { background: var(--limit) } .key.pale { opacity: .45 }
.key.tick { width: 3px; margin: 0 .6em 0 .2em }
.keys { font-size: .9rem } .keys span { margin-right: 1.2em; white-space: nowrap }
.wide { overflow-x: auto; max-width: 100% } table { border-collapse: collapse; font-size: .9rem; margin-top: .75rem }
td, th { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap;
         font-variant-numeric: tabular-nums } th { vertical-align: bottom }
td.name, th.name { text-align: left }
td:first-child { white-space: normal; min-width: 8rem; max-width: 24rem }
@media (min-width: 48rem) { td:first-child { min-width: 12rem } }
td.words { text-align: left; white-space: normal;
         min-width: 14rem; max-width: 24rem }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--paper); padding-left: 0 }
"""
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
    words: str,
    notes: Sequence[str],
    warnings: Sequence[str] = (),
) -> str:
    """Return the HTML of a report.

    ``warnings`` are sentences that stand above everything else. ``facts`` contains the main numbers with their
    meanings, the most important first. ``words`` is a paragraph about the source of the numbers and the next steps.
    ``notes`` contains a sentence for each fault of the log.
    """
    shown = "".join(f"<div><b>{text_of(number)}</b>{text_of(name)}</div>" for number, name in facts)
    body = "".join(f"<h2>{text_of(s.title)}</h2>{_paragraph(s.words)}{s.body}" for s in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text_of(title)}</title><style>{_CSS}</style></head>\n"
        f'<body><h1>{text_of(title)}</h1>{_warnings(warnings)}<div class="facts">{shown}</div>{_paragraph(words)}'
        f"{_notes(notes)}{body}</body></html>\n"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, names: int = 1, words: int = 0) -> str:
    """Return an HTML table.

    The first ``names`` columns contain names, the last ``words`` columns contain sentences, and the others contain
    numbers.
    """

    def cells(tag: str, values: Sequence[str]) -> str:
        last = len(values) - words
        kinds = ["name" if at < names else "words" if at >= last else "" for at in range(len(values))]
        return "".join(
            f'<{tag} class="{kind}">{text_of(value)}</{tag}>' if kind else f"<{tag}>{text_of(value)}</{tag}>"
            for kind, value in zip(kinds, values, strict=True)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells("th", columns)}</tr>{lines}</table></div>'


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
    return f"{amount / 1e12:,.0f} TB" if abs(amount) >= 1e15 else f"{amount / 1e12:.3g} TB"


def duration(ms: float) -> str:
    """Return a duration as text, such as 3.2 s, 14 min or 5.1 h."""
    for unit, factor in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= factor:
            return f"{ms / factor:,.3g} {unit}"
    return f"{ms:.0f} ms"


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
