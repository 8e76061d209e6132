"""Draws what ``top`` shows: a table of clients that fits the width of the terminal, or the details of one client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.config.units import number_and_unit, scaled
from kafka_quota_proxy.proxy.cli.top.terminal import Column, Line, Text, table
from kafka_quota_proxy.proxy.cli.top.view import Row, View, selected_index
from kafka_quota_proxy.proxy.quota.rule_phrases import limit_words

_MEDIUM: Final = 118  # from this width on, there are more columns
_WIDE: Final = 170
_KIND_OF_LABEL: Final = {kind.label: kind for kind in BUCKET_KINDS}
_BINARY: Final = float(1 << 20)  # a number that is written in a binary unit
_MOST_DIGITS: Final = 4  # of a limit that is shown as it was written
_NEAR: Final = 0.8
_ALL: Final = slice(None)
_SHORT: Final = 13  # the width of a rule's place on a narrow terminal
KEYS: Final = "s sort  k kind  / filter  p pause  ↑↓ select  Enter details  q quit"
DETAIL_KEYS: Final = "Esc back  p pause  q quit"


class _Column(NamedTuple):
    heading: str
    cell: Callable[[Row], Text | str]
    # On narrow terminals, on narrow ones with several brokers, on medium and on wide ones. 0 leaves the column out.
    widths: tuple[int, int, int, int]
    is_number: bool = False


def clients_table(rows: Sequence[Row], *, width: int, shown: slice = _ALL, selected: int | None = None) -> list[Line]:
    """Return a line with the headings and one for each row in ``shown``, which are at most ``width`` wide."""
    has_brokers = len({row["broker"] for row in rows}) > 1
    size = (1 if has_brokers else 0) if width < _MEDIUM else 2 if width < _WIDE else 3
    columns = [column for column in _COLUMNS if column.widths[size]]
    head, *body = table(
        [Column(one.heading, one.widths[size], one.is_number, one.heading in _GROWING) for one in columns],
        ([_text(column.cell(row)) for column in columns] for row in rows[shown]),
        width=width,
    )
    if selected is not None:
        body[selected] = [Text(text, f"{style} reverse") for text, style in body[selected]]
    return [head, *body]


def screen(
    view: View, page: Mapping[str, Any] | None, *, width: int, height: int, url: str, trouble: str = ""
) -> list[Line]:
    """Return the whole screen. ``page`` is the proxy's last answer, and ``trouble`` says why there is no newer one."""
    head = [_line(f"kafka-quota-proxy top  {url}  {page['time'] if page else ''}", "bold")]
    if trouble:
        head.append(_line(trouble, "bold red"))
    if page is None:
        return [*head, _line("" if trouble else "asking the proxy"), _line("q quit", "dim")]
    if view.has_details:
        row = next((row for row in page["clients"] if "rules" in row), None)
        lines = [_line("the client is no longer active")] if row is None else details(row)
        return [*head, *lines[: height - len(head) - 1], _line(DETAIL_KEYS, "dim")]
    rows = view.rows(page["clients"])
    head += (_line(text, "bold red") for text in bypassed(page))
    head.append(_line(summary(view, page, rows)))
    room = max(1, height - len(head) - 2)
    at = selected_index(view, rows)
    first = max(0, min(at - room + 1, len(rows) - room))
    marked = at - first if view.selected is not None and rows else None
    foot = f"filter: {view.filter}▏ Enter keeps it, Esc removes it" if view.is_typing else KEYS
    body = clients_table(rows, width=width, shown=slice(first, first + room), selected=marked)
    return [*head, *body, _line(foot, "dim")]


def bypassed(page: Mapping[str, Any]) -> list[str]:
    """Return a line for each broker that sends clients past the proxy."""
    return [f"past the proxy: {one['broker']} sends clients to {one['advertises']}" for one in page.get("bypassed", ())]


def summary(view: View, page: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Return a line that says how many clients there are, and which of them are shown in which order."""
    throttled = sum(bool(row["throttled"]) for row in rows)
    shown = f"{len(rows)} of {page['total']} clients, {throttled} throttled"
    order = f"ordered by {view.sort}" + (f", {view.kind} only" if view.kind else "")
    among = len(page["clients"])
    filtered = f", filter {printable(view.filter)!r}" if view.filter else ""
    if filtered and among < page["total"]:
        filtered += f" in the first {among}"
    return f"{shown}, {order}{filtered}" + (", paused" if view.is_paused else "")


def details(row: Row) -> list[Line]:
    """Return lines about one client: its rule, the rules that lost and why, and its last throttles."""
    kind = _KIND_OF_LABEL[row["kind"]]
    user, client_id = (_name(row[key]) for key in ("user", "client_id"))
    used = "" if row["utilisation"] is None else f", {_percent(row['utilisation'])} of the limit"
    like = _BINARY if row["limit"] is None else kind.spec.unit.parse(row["limit_written"])
    shown_rate = kind.spec.unit.described(round(row["rate"], 1), like)
    found: list[Line] = [
        _line(f"{kind.key} of user {user}, client-id {client_id}", "bold"),
        _line(f"  rate         {shown_rate}{used}"),
        [Text("  throttled    "), _throttled(row) if row["throttled"] else Text("no")],
        _line(f"  last minute  {row['throttle_seconds_last_minute']:g} s throttled"),
        _line(
            f"  connections  {row['connections']}, at listener {row['listener'] or '-'}, broker {row['broker'] or '-'}"
        ),
        _line(f"  waits for    {_waits(row)}"),
        _line(f"  addresses    {printable(', '.join(row['addresses'])) or '-'}"),
    ]
    if row["limit"] is not None:
        found.append(_line(f"  manner       {row['enforcement']}, {row['shaping']}"))
    for one in row.get("rules", ()):
        heading = "rule" if one["wins"] else "lost"
        words = limit_words(kind.key, kind.spec.unit.parse(one["limit_written"]))
        found.append(_line(f"  {heading:<12} {_entity(one['rule'])}, {words} ({printable(one['rule']['source'])})"))
        found.append(_line(f"               level {one['level']} of 8 ({one['says']}): {one['reason']}"))
    throttles = row.get("last_throttles", ())
    found += (_line(f"  throttle     {one['time'][11:-1]}, for {one['throttle_time_ms']} ms") for one in throttles)
    return found


def _waits(row: Row) -> str:
    """Return what the next requests of the client's connections wait for, such as ``quota (2 of 3 connections)``."""
    found = row["waits_for"].items()
    words = (f"{by.replace('_', ' ')} ({count} of {row['connections']} connections)" for by, count in found)
    return ", ".join(words) or "nothing"


def printable(text: str) -> str:
    """Return ``text`` with characters that a terminal may act on written as escapes, because clients choose names."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def limit(row: Row) -> str:
    """Return the limit of a row in few characters, in the unit in which it was written."""
    kind, written = _KIND_OF_LABEL[row["kind"]], row["limit_written"]
    if written is None:
        return "-"
    number, unit = number_and_unit(written)
    is_short = unit and len(number) <= _MOST_DIGITS
    return f"{number} {unit}" if is_short else rate(kind, row["limit"], like=written)


def rate(kind: QuotaKind, value: float, *, like: str | None) -> str:
    """Return a rate per second in few characters, in the kind of unit in which its limit is written, ``like``."""
    if kind is QuotaKind.REQUEST:
        return f"{value:.1f} %"
    if kind not in (QuotaKind.PRODUCE, QuotaKind.FETCH):
        return f"{value:.1f}"
    amount, unit = scaled(value, like=like or "iB")
    return f"{amount:.{0 if amount >= 100 or unit == 'B' else 1}f} {unit}"


def duration(milliseconds: float) -> str:
    """Return a time as text in few characters, such as ``12 s`` or ``3 min``."""
    seconds = milliseconds / 1_000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def bar(utilisation: float | None, *, cells: int = 5) -> Text:
    """Return a bar of the part of a limit that is used, and the part in per cent."""
    if utilisation is None:
        return Text("")
    full = max(0, min(cells, round(utilisation * cells)))
    style = "red" if utilisation >= 1 else "yellow" if utilisation >= _NEAR else "green"
    return Text(f"{'█' * full}{'░' * (cells - full)} {_percent(utilisation)}".lstrip(), style)


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{min(part, 9.99):.0%}"


def _throttled(row: Row) -> Text:
    return Text(duration(row["throttled_for_ms"]), "bold red") if row["throttled"] else Text("")


def _minute(row: Row) -> str:
    seconds = row["throttle_seconds_last_minute"]
    return f"{seconds / 60:.0%}" if seconds else ""


def _name(name: str | None) -> str:
    return "(several)" if name is None else printable(name) or "(none)"


def _client(row: Row) -> str:
    """Return both names in one cell. A user that did not log in, or a missing client-id, is left out."""
    user, client_id = row["user"], row["client_id"]
    if user == "ANONYMOUS":
        return _name(client_id)
    return _name(user) if not client_id else f"{_name(user)} {_name(client_id)}"


def _entity(rule: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key} {printable(name)}" for key in ("user", "client-id") if (name := rule[key]) is not None)


def _source(row: Row) -> str:
    """Return the file and line of the rule, without the file's folder."""
    return "" if row["rule"] is None else printable(row["rule"]["source"].rpartition("/")[2])


def _short_source(row: Row) -> str:
    """Return the file and line of the rule. If they are long, their end, because the line is what counts."""
    source = _source(row)
    return source if len(source) <= _SHORT else f"…{source[1 - _SHORT :]}"


def _rule(row: Row) -> str:
    return "" if row["rule"] is None else f"{_source(row)} {_entity(row['rule'])}"


def _addresses(row: Row) -> str:
    return printable(", ".join(row["addresses"]))


def _rate(row: Row) -> str:
    return rate(_KIND_OF_LABEL[row["kind"]], row["rate"], like=row["limit_written"])


def _line(text: str, style: str = "") -> Line:
    return (Text(printable(text), style),)


def _text(cell: Text | str) -> Text:
    return Text(cell) if isinstance(cell, str) else cell


_COLUMNS: Final = (
    _Column("kind", lambda row: row["kind"], (7, 7, 12, 12)),
    _Column("client", _client, (13, 13, 0, 0)),
    _Column("user", lambda row: _name(row["user"]), (0, 0, 14, 14)),
    _Column("client-id", lambda row: _name(row["client_id"]), (0, 0, 18, 26)),
    _Column("broker", lambda row: "" if row["broker"] is None else str(row["broker"]), (0, 6, 6, 6), is_number=True),
    _Column("rate/s", _rate, (8, 8, 8, 8), is_number=True),
    _Column("limit/s", limit, (8, 8, 8, 8), is_number=True),
    _Column("used", lambda row: bar(row["utilisation"]), (10, 0, 10, 10)),
    _Column("used", lambda row: bar(row["utilisation"], cells=0), (0, 4, 0, 0), is_number=True),
    _Column("throttled", _throttled, (9, 9, 9, 9), is_number=True),
    _Column("1min", _minute, (4, 4, 4, 4), is_number=True),
    _Column("rule", _short_source, (_SHORT, _SHORT, 0, 0)),
    _Column("rule", _source, (0, 0, 18, 0)),
    _Column("rule", _rule, (0, 0, 0, 44)),
    _Column("level", lambda row: "" if row["level"] is None else str(row["level"]), (0, 0, 0, 5), is_number=True),
    _Column("conn", lambda row: str(row["connections"]), (0, 0, 5, 5), is_number=True),
    _Column("addresses", _addresses, (0, 0, 16, 22)),
    _Column("listener", lambda row: printable(row["listener"] or ""), (0, 0, 0, 12)),
)
# The columns whose texts are names. They share the width that is left.
_GROWING: Final = ("client", "user", "client-id", "rule", "addresses")
