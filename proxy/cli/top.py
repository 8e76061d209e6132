"""``kafka-quota-proxy top`` shows the clients of a running proxy: who is throttled now, by which rule, and since when.

On a terminal it draws the table again each second, with the escapes that every terminal knows.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import Final, NoReturn

from kafka_quota_proxy.proxy.cli.admin_client import DEFAULT_URL, AdminClient, AdminPortError
from kafka_quota_proxy.proxy.cli.clients_table import KINDS, Page, cut, duration, lines, printable, screen

_PROGRAM: Final = "kafka-quota-proxy top"
SORTS: Final = ("throttled", "utilisation", "rate", "connections", "user", "client_id")
_MOST: Final = 10_000
# A proxy that does not answer within this time is shown as one that is away.
_TIMEOUT_S: Final = 5.0
INTERVAL_S: Final = 1.0
_INTERRUPTED: Final = 130

# The columns and lines of a file or a pipe, in which names are whole.
_IN_A_FILE: Final = (200, 24)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``top``."""
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the admin port of the proxy (default {DEFAULT_URL})")
    parser.add_argument("--kind", choices=KINDS, help="show only this kind of quota")
    parser.add_argument("--sort", choices=SORTS, default=SORTS[0], help=f"the order (default {SORTS[0]})")
    parser.add_argument("--limit", metavar="N", type=_rows, default=100, help="ask for at most N clients (default 100)")
    parser.add_argument("--once", action="store_true", help="print the clients once, and end")
    parser.add_argument("--json", action="store_true", help="print them once, as one line of JSON")


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= _MOST):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {_MOST}, not {text[:40]!r}")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    """Show the clients, and return the exit status."""
    query = {"sort": args.sort, "limit": str(args.limit)} | ({"kind": args.kind} if args.kind else {})
    try:
        client = AdminClient(args.url, timeout_s=_TIMEOUT_S)
        page = client.clients(query)
        if args.json:
            sys.stdout.write(json.dumps(page) + "\n")
            return 0
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr] # it is a text stream
        if sys.stdout.isatty() and not args.once:
            _follow(client, query, page)
        sys.stdout.writelines(f"{line}\n" for line in lines(page, query, width=get_terminal_size(_IN_A_FILE).columns))
    except AdminPortError as error:
        sys.stderr.write(f"{_PROGRAM}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _follow(client: AdminClient, query: Mapping[str, str], page: Page) -> NoReturn:
    """Draw the clients each second, until the user interrupts it. Of a proxy that is away the last page stays."""
    trouble, answered_s = "", time.monotonic()
    with screen() as draw:
        while True:
            width = get_terminal_size().columns
            draw([cut(trouble, width), *lines(page, query, width=width)])
            time.sleep(INTERVAL_S)
            try:
                page, trouble, answered_s = client.clients(query), "", time.monotonic()
            except AdminPortError as error:
                lost = duration((time.monotonic() - answered_s) * 1_000)
                trouble = printable(f"no answer for {lost}, trying again: {error}")
