"""Runs ``kafka-quota-proxy top``: on a terminal until the user quits, or once, as a table or as JSON."""

import argparse
import json
import sys
import time
from typing import Final

from kafka_quota_proxy.proxy.cli.admin_client import DEFAULT_URL, AdminClient, AdminPortError
from kafka_quota_proxy.proxy.cli.top import live
from kafka_quota_proxy.proxy.cli.top.poller import INTERVAL_S, Page, Query
from kafka_quota_proxy.proxy.cli.top.view import KINDS, SORTS, View

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
            live.print_once(client.clients(view.query()), view)
        else:
            live.show(client.clients, view, url=args.url)
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
