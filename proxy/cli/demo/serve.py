"""Runs ``demo --serve``: an embedded broker and the proxy in front of it, for the user's own applications."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final, NoReturn

from kafka_quota_proxy.proxy.cli.demo.display import Display
from kafka_quota_proxy.proxy.cli.demo.processes import free_ports
from kafka_quota_proxy.proxy.cli.demo.runner import broker_and_proxy, cancel_on_sigterm, fetch_text, until_first_end
from kafka_quota_proxy.proxy.cli.demo.serve_arguments import ServeOptions, proxy_config
from kafka_quota_proxy.proxy.cli.demo.workload import DemoError
from kafka_quota_proxy.proxy.cli.top.screen import clients_table
from kafka_quota_proxy.proxy.cli.top.terminal import Line, Screen, Text
from kafka_quota_proxy.proxy.cli.top.view import Row, View

_REDRAWN_S: Final = 1.0


async def serve(options: ServeOptions, display: Display) -> NoReturn:
    """Serve applications until this task is cancelled, as SIGTERM and Ctrl-C do.

    Raises:
        DemoError: A port is in use, or the broker or the proxy has ended.
    """
    cancel_on_sigterm()
    port = _usable_port(options.port, option="--port")
    admin_port = _usable_port(options.admin_port, option="--admin-port")

    def config(upstream: str) -> str:
        return proxy_config(options, port=port, admin_port=admin_port, upstream=upstream)

    async with broker_and_proxy((), config, proxy_port=port) as (broker, proxy):
        steps = first_steps(options, port=port, admin_port=admin_port)
        for line in steps:
            display.note(line)
        show = _show(f"http://127.0.0.1:{admin_port}/clients", steps)
        await until_first_end(show, (broker.fail_when_ended(), proxy.fail_when_ended()))
    raise AssertionError("the table is shown without an end")


def first_steps(options: ServeOptions, *, port: int, admin_port: int) -> list[str]:
    """Return the lines that say how to use what has been started."""
    client_ids = [str(rule["client-id"]) for rule in options.quotas.values() if "client-id" in rule]
    named = next((client_id for client_id in client_ids if not client_id.startswith("<")), "my-app")
    lines = [
        "Ready: an embedded broker behind the proxy. Configure your application with:",
        f"  bootstrap.servers=127.0.0.1:{port}",
        f"  client.id={named}",
        *(f"Quota: {text}" for text in options.quotas),
    ]
    if not options.quotas:
        lines.append("No quota is set. To set one: --quota client-id=my-app,producer_byte_rate=1MiB")
    return [*lines, f"Throttles on demand: http://127.0.0.1:{admin_port}/testing/throttles. Ctrl-C ends.", ""]


async def _show(url: str, steps: Sequence[str]) -> NoReturn:
    """Show the table of ``top`` below the first steps, again and again. Without a terminal, show nothing."""
    view = View()
    if not sys.stdout.isatty():
        await asyncio.Event().wait()
    with Screen() as screen:
        while True:
            try:
                page = json.loads(await asyncio.to_thread(fetch_text, url))
            except DemoError:  # a busy proxy may answer late; its end is an error elsewhere
                page = {"clients": ()}
            screen.show(partial(_lines, steps, view.rows(page["clients"])))
            await asyncio.sleep(_REDRAWN_S)


def _lines(steps: Sequence[str], rows: Sequence[Row], width: int, _height: int) -> list[Line]:
    return [*((Text(line),) for line in steps), *clients_table(rows, width=width)]


def _usable_port(port: int, *, option: str) -> int:
    """Return ``port``, or any free port if it is 0.

    Raises:
        DemoError: The port cannot be used. The message names the option.
    """
    if port == 0:
        return free_ports(1)[0]
    with socket.socket() as one:
        # As for the proxy's own socket, connections that have just ended do not matter.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise DemoError(
                    f"port {port} is in use: end the program that listens there, or give another port with {option}"
                ) from error
            raise DemoError(f"port {port} cannot be used ({error.strerror}): give another one with {option}") from error
    return port
