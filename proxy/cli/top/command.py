"""Runs ``kafka-quota-proxy top``: on a terminal until the user quits, or once, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Final

from kafka_quota_proxy.proxy.cli.admin_client import DEFAULT_URL, AdminClient, AdminPortError
from kafka_quota_proxy.proxy.cli.top.poller import INTERVAL_S, Answer, Page, Poller, Query
from kafka_quota_proxy.proxy.cli.top.screen import bypassed, clients_table, duration, printable, screen, summary
from kafka_quota_proxy.proxy.cli.top.terminal import Keys, Line, Screen, Text, write_lines
from kafka_quota_proxy.proxy.cli.top.view import KINDS, SORTS, View, after_key

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


_PROGRAM: Final = "kafka-quota-proxy top"
_MOST: Final = 10_000
# A proxy that does not answer within this time is shown as one that is away.
_TIMEOUT_S: Final = 5.0
_INTERRUPTED: Final = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``top``."""
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the admin port of the proxy (default {DEFAULT_URL})")
    parser.add_argument("--kind", choices=KINDS, help="show only this kind of quota")
    parser.add_argument("--sort", choices=SORTS, default=SORTS[0], help=f"the order (default {SORTS[0]})")
    parser.add_argument("--limit", metavar="N", type=_rows, default=100, help="ask for at most N clients (default 100)")
    parser.add_argument("--once", action="store_true", help="print the clients once, and end")
    parser.add_argument("--json", action="store_true", help="print JSON: a line each second, or one line with --once")


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= _MOST):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {_MOST}, not {text[:40]!r}")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    """Show the clients, and return the exit status."""
    view = View(sort=args.sort, kind=args.kind, limit=args.limit)
    try:
        client = AdminClient(args.url, timeout_s=_TIMEOUT_S)
        if args.json and not args.once:
            return _print_lines(client, view.query())
        if args.json:
            _print_json(client.clients(view.query()))
            return 0
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # it is a text stream
        if args.once or not sys.stdout.isatty():
            print_once(client.clients(view.query()), view)
        else:
            show(client.clients, view, url=args.url)
    except AdminPortError as error:
        sys.stderr.write(f"{_PROGRAM}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _print_lines(client: AdminClient, query: Query) -> int:
    """Print the clients each second, until the user interrupts it. A proxy that is away is asked again."""
    is_away = False
    while True:
        try:
            _print_json(client.clients(query))
            if is_away:
                sys.stderr.write(f"{_PROGRAM}: the proxy answers again\n")
            is_away = False
        except AdminPortError as error:
            if not is_away:
                sys.stderr.write(f"{_PROGRAM}: {error}; trying again\n")
            is_away = True
        time.sleep(INTERVAL_S)


def _print_json(page: Page) -> None:
    sys.stdout.write(json.dumps(page) + "\n")
    sys.stdout.flush()
