"""Decides what ``top`` shows, and how a key changes that. This module does no I/O and reads no clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS

Row = Mapping[str, Any]
Identity = tuple[object, ...]

SORTS: Final = ("throttled", "utilisation", "rate", "connections", "user", "client_id")
KINDS: Final = tuple(kind.label for kind in BUCKET_KINDS)
# While there is a filter, the proxy is asked for so many rows, because it does not know the filter.
FILTERED_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the user wants to see.

    Attributes:
        kind: The kind of quota, or None for every kind.
        limit: How many rows are asked for.
        filter: Only rows are shown that contain this text.
        is_typing: Whether keys are added to the filter.
        selected: The identity of the selected row, or None before a row is selected.
        has_details: Whether the details of the selected row are shown.
    """

    sort: str = SORTS[0]
    kind: str | None = None
    limit: int = 100
    filter: str = ""
    is_typing: bool = False
    is_paused: bool = False
    selected: Identity | None = None
    has_details: bool = False

    def query(self) -> dict[str, str]:
        """Return the parameters of the request for the rows that are shown."""
        limit = max(self.limit, FILTERED_ROWS) if self.filter else self.limit
        found = {"sort": self.sort, "limit": str(limit)}
        if self.has_details and self.selected is not None:
            kind, user, client_id, *_ = self.selected
            names = {"user": user, "client_id": client_id}
            given = {key: str(name) for key, name in names.items() if name is not None}
            return found | {"kind": str(kind), "details": "true"} | given
        return found if self.kind is None else found | {"kind": self.kind}

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Return those of ``rows`` that are shown, in the wanted order."""
        wanted = self.filter.casefold()
        found = [row for row in rows if self.kind in (None, row["kind"]) and (not wanted or wanted in _text(row))]
        return sorted(found, key=lambda row: _order(self.sort, row))


def identity(row: Row) -> Identity:
    """Return what tells a row from all others, as long as its rule does not change."""
    return row["kind"], row["user"], row["client_id"], row["broker"]


def after_key(view: View, key: str, rows: Sequence[Row]) -> View | None:
    """Return what is shown after the user has pressed a key, or None if the user quits.

    ``rows`` are the rows that are shown now.
    """
    if view.is_typing:
        return _typed(view, key)
    match key:
        case "q":
            return None
        case "esc":
            return replace(view, has_details=False) if view.has_details else replace(view, filter="")
        case "s":
            return replace(view, sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)])
        case "k":
            kinds = (None, *KINDS)
            return replace(view, kind=kinds[(kinds.index(view.kind) + 1) % len(kinds)], has_details=False)
        case "p" | " ":
            return replace(view, is_paused=not view.is_paused)
        case "/":
            return replace(view, is_typing=True, has_details=False)
        case "enter" if rows:
            return replace(view, has_details=not view.has_details, selected=identity(rows[selected_index(view, rows)]))
        case "up" | "down" | "page up" | "page down" if rows and not view.has_details:
            step = {"up": -1, "down": 1, "page up": -10, "page down": 10}[key]
            at = max(0, min(len(rows) - 1, selected_index(view, rows) + step)) if view.selected is not None else 0
            return replace(view, selected=identity(rows[at]))
    return view


def selected_index(view: View, rows: Sequence[Row]) -> int:
    """Return the place of the selected row in ``rows``, or 0 if it is not there."""
    return next((at for at, row in enumerate(rows) if identity(row) == view.selected), 0)


def _typed(view: View, key: str) -> View:
    match key:
        case "enter":
            return replace(view, is_typing=False)
        case "esc":
            return replace(view, is_typing=False, filter="")
        case "backspace":
            return replace(view, filter=view.filter[:-1])
    return replace(view, filter=view.filter + key) if len(key) == 1 else view


def _text(row: Row) -> str:
    """Return what a filter is looked for in: names, addresses, listener and the place of the rule."""
    rule = row["rule"] or {}
    parts = (row["kind"], row["user"], row["client_id"], row["listener"], rule.get("source"), *row["addresses"])
    return "\n".join(str(part) for part in parts if part is not None).casefold()


def _order(sort: str, row: Row) -> tuple[Any, ...]:
    utilisation = row["utilisation"] or 0.0
    names = row["user"] or "", row["client_id"] or "", row["kind"], row["broker"] or 0
    match sort:
        case "throttled":
            # In coarse steps, so that two clients at their limits do not change places each second.
            tenth = round(row["throttle_seconds_last_minute"] / 6)
            return not row["throttled"], -tenth, -round(utilisation, 1), *names
        case "utilisation":
            return -utilisation, *names
        case "rate" | "connections":
            return -row[sort], *names
        case "client_id":
            return row["client_id"] or "", *names
    return names
