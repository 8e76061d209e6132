"""The ``kafka-quota-proxy healthcheck`` command, which asks a running proxy whether it is alive or ready.

The command takes the address from the configuration file, and does not check the rest of the file. A proxy goes on with
its old configuration while its file has a fault, so a fault does not make it unhealthy.
"""

import argparse
import socket
import sys
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from kafka_quota_proxy.config.addresses import parse_address
from kafka_quota_proxy.config.document import parse
from kafka_quota_proxy.config.errors import ConfigError, UnitError
from kafka_quota_proxy.config.model import Address

_TIMEOUT_S: Final = 2.0
_MAX_BODY_BYTES: Final = 1_000


class _UnhealthyError(Exception):
    """The proxy does not answer, or its answer is not 200. The message gives the reason."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``healthcheck``."""
    parser.add_argument("config", metavar="CONFIG", type=Path, help="the YAML file of the running proxy")
    parser.add_argument(
        "--ready", action="store_true", help="ask /readyz, which also needs every upstream, and not /livez"
    )


def execute(args: argparse.Namespace) -> int:
    """Ask the proxy, print its answer, and return 0 if it is healthy and 1 if not. Docker knows no other status."""
    try:
        sys.stdout.write(f"{_ask(args.config, is_ready=args.ready)}\n")
    except (_UnhealthyError, ConfigError) as error:
        sys.stderr.write(f"kafka-quota-proxy healthcheck: {error}\n")
        return 1
    return 0


def _ask(file: Path, *, is_ready: bool) -> str:
    try:
        data: Any = parse(file.read_text(encoding="utf-8"), file=str(file)).data
    except (OSError, UnicodeDecodeError) as error:
        raise _UnhealthyError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        if data.get("admin"):
            return _get(_reachable(data["admin"]["bind"]), "/readyz" if is_ready else "/livez")
        if is_ready:
            raise _UnhealthyError(f"{file} has no section admin, which --ready needs")
        return _connect(_reachable(data["listeners"][0]["bind"]))
    except (AttributeError, LookupError, TypeError, UnitError) as error:
        message = f"{file} names no address to ask: admin.bind, or the bind of the first listener"
        raise _UnhealthyError(message) from error


def _reachable(bind: str) -> Address:
    """Return the address of this machine at which a socket that is bound to ``bind`` can be reached."""
    address = parse_address(bind)
    for wildcard, loopback in (("0.0.0.0", "127.0.0.1"), ("::", "::1")):  # noqa: S104 - binds nothing
        if address.host == wildcard:
            return Address(host=loopback, port=address.port)
    return address


def _get(address: Address, path: str) -> str:
    try:
        with closing(HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read(_MAX_BODY_BYTES).decode("utf-8", "replace").strip()
    except (OSError, HTTPException) as error:
        raise _UnhealthyError(f"http://{address}{path}: {error}") from error
    answer = f"http://{address}{path}: {response.status}: {body}"
    if response.status != HTTPStatus.OK:
        raise _UnhealthyError(answer)
    return answer


def _connect(address: Address) -> str:
    try:
        socket.create_connection((address.host, address.port), timeout=_TIMEOUT_S).close()
    except OSError as error:
        raise _UnhealthyError(f"{address}: {error}") from error
    return f"{address} accepts connections"
