"""Shows the clients of a proxy on a terminal, again every second, until the user quits."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_quota_proxy.proxy.cli.top.keys import Keys
from kafka_quota_proxy.proxy.cli.top.poller import Answer, Page, Poller, Query
from kafka_quota_proxy.proxy.cli.top.screen import bypassed, clients_table, duration, printable, screen, summary
from kafka_quota_proxy.proxy.cli.top.terminal import Line, Screen, Text, write_lines
from kafka_quota_proxy.proxy.cli.top.view import View, after_key

_REDRAWN_S = 0.2


def show(ask: Callable[[Query], Page], view: View, *, url: str) -> None:
    """Show the clients until the user quits. ``ask`` asks the proxy, and raises ``AdminPortError``."""
    page: Page | None = None

    def lines(width: int, height: int) -> list[Line]:
        return screen(view, page, width=width, height=height, url=url, trouble=trouble(answer, url))

    with Poller(ask) as poller, Keys() as keys, Screen() as shown:
        while True:
            poller.want(view.query())
            answer = poller.answer
            is_of_view = answer.query is not None and ("details" in answer.query) == view.has_details
            if (is_of_view and not view.is_paused) or page is None:
                page = answer.page
            shown.show(lines)
            rows = view.rows(page["clients"]) if page else []
            for key in keys.read(_REDRAWN_S):
                after = after_key(view, key, rows)
                if after is None:
                    return
                view = after


def trouble(answer: Answer, url: str) -> str:
    """Return a line that says since when the proxy at ``url`` does not answer, and why; empty if it answers."""
    if not answer.trouble:
        return ""
    lost = duration((time.monotonic() - answer.lost_s) * 1_000)
    return f"no answer for {lost}, trying again: {answer.trouble.removeprefix(f'{url}: ')}"


def print_once(page: Page, view: View) -> None:
    """Print the clients as a table."""
    rows = view.rows(page["clients"])
    head = [(Text(printable(text)),) for text in (*bypassed(page), summary(view, page, rows))]
    write_lines(lambda width: [*head, *clients_table(rows, width=width)])
