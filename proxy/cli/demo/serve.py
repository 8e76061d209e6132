"""Runs ``demo --serve``: an embedded broker and the proxy in front of it, for the user's own applications."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from shutil import get_terminal_size
from typing import Final, NoReturn
from urllib.parse import urlencode

from kafka_quota_proxy.config.model import Shaping
from kafka_quota_proxy.proxy.cli.clients_table import lines, screen
from kafka_quota_proxy.proxy.cli.demo.display import Display
from kafka_quota_proxy.proxy.cli.demo.runner import (
    broker_and_proxy,
    cancel_on_sigterm,
    fail_when_ended,
    fetch_text,
    until_first_end,
)
from kafka_quota_proxy.proxy.cli.demo.workload import DemoError, Rule, proxy_config
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.ports import adjacent_ports

_REDRAWN_S: Final = 1.0


async def serve(quotas: Sequence[Rule], shaping: Shaping, display: Display, *, port: int, admin_port: int) -> NoReturn:
    """Serve applications until this task is cancelled, as SIGTERM and Ctrl-C do. A port of 0 stands for any free one.

    Raises:
        ChildError: A port is in use, or the broker or the proxy has ended.
    """
    cancel_on_sigterm()
    port = _usable_port(port, option="--port")
    admin_port = _usable_port(admin_port, option="--admin-port")

    def config(upstream: str) -> str:
        return proxy_config(quotas, shaping, port=port, admin_port=admin_port, upstream=upstream)

    async with broker_and_proxy((), config, proxy_port=port) as children:
        steps = first_steps(quotas, port=port, admin_port=admin_port)
        for line in steps:
            display.note(line)
        show = [_show(steps, admin_port)] if sys.stdout.isatty() else []
        await until_first_end(fail_when_ended(children), show)
    raise AssertionError("fail_when_ended returns only by raising")


async def _show(steps: Sequence[str], admin_port: int) -> NoReturn:
    """Draw the first steps, and below them the clients as ``top`` does, each second."""
    query = {"sort": "throttled"}
    url = f"http://127.0.0.1:{admin_port}/clients?{urlencode(query)}"
    with screen() as draw:
        while True:
            with suppress(DemoError):  # a busy proxy may answer late; its end is an error elsewhere
                page = json.loads(await in_thread(partial(fetch_text, url)))
                draw([*steps, "", *lines(page, query, width=get_terminal_size().columns)])
            await asyncio.sleep(_REDRAWN_S)


def first_steps(quotas: Sequence[Rule], *, port: int, admin_port: int) -> list[str]:
    """Return the lines that say how to use what has been started."""
    client_ids = [str(rule["client-id"]) for rule in quotas if "client-id" in rule]
    named = next((client_id for client_id in client_ids if not client_id.startswith("<")), "my-app")
    texts = [",".join(f"{key}={value}" for key, value in rule.items()) for rule in quotas]
    return [
        "Ready: an embedded broker behind the proxy. Configure your application with:",
        f"  bootstrap.servers=127.0.0.1:{port}",
        f"  client.id={named}",
        *(f"Quota: {text}" for text in texts or ["none; to set one: --quota client-id=my-app,producer_byte_rate=1MiB"]),
        f"Clients: kafka-quota-proxy top --url http://127.0.0.1:{admin_port}",
        f"Throttles on demand: http://127.0.0.1:{admin_port}/testing/throttles. Ctrl-C ends.",
    ]


def _usable_port(port: int, *, option: str) -> int:
    """Return ``port``, or any free port if it is 0.

    Raises:
        DemoError: The port cannot be used. The message names the option.
    """
    if port == 0:
        return adjacent_ports(1)[0]
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
