"""Reads the options of ``demo --serve``, and writes the configuration of its proxy. Does no I/O."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import DEFAULT, Shaping
from kafka_quota_proxy.config.schema import QUOTA

DEFAULT_PORT: Final = 9092
DEFAULT_ADMIN_PORT: Final = 9308
# The embedded broker has no logins.
USER: Final = "ANONYMOUS"

_EXAMPLE: Final = "client-id=my-app,producer_byte_rate=1MiB"
_ENTITY: Final = ("user", "client-id", "ip")
# The values of the other keys, schedule and ramp, are mappings.
_KEYS: Final = tuple(key for key in QUOTA.keys if key not in ("schedule", "ramp"))
# A comma within a value, such as that of a client-id, is not followed by KEY=.
_SEPARATOR: Final = re.compile(r",(?=[a-z_-]+=)")
_QUOTA_FAULT: Final = re.compile(r"quotas\[(\d+)\]\.?(.*)")
# So that connections of the user's applications do not delay the end.
_DRAIN_TIMEOUT: Final = "1s"
_OF_THE_DEMO: Final = ("produce_rate", "fetch_rate", "seconds", "json")
_OF_SERVE: Final = ("port", "admin_port", "quota")


class UsageError(Exception):
    """The options are invalid. The message, for the user, says what is wrong or what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of ``demo --serve``. A port of 0 stands for any free one.

    ``quotas`` has the rules as in the section ``quotas`` of a configuration file, by the text of their option.
    """

    port: int
    admin_port: int
    shaping: Shaping
    quotas: Mapping[str, Mapping[str, str | int]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that need ``--serve``, and ``--serve`` itself."""
    group = parser.add_argument_group("for your own application")
    group.add_argument(
        "--serve",
        action="store_true",
        help="run the broker and the proxy without clients, and show the clients that connect, until Ctrl-C",
    )
    group.add_argument(
        "--port",
        type=_port,
        metavar="PORT",
        help=f"the port for clients, on 127.0.0.1 (default {DEFAULT_PORT}; 0: any free port)",
    )
    group.add_argument(
        "--quota",
        action="append",
        metavar="KEY=VALUE,...",
        help=f"a quota, such as {_EXAMPLE}; may be repeated. Keys: {', '.join(_KEYS)}, as in a configuration file",
    )
    group.add_argument(
        "--admin-port",
        type=_port,
        metavar="PORT",
        help=f"the port of /metrics and of the HTTP API /testing (default {DEFAULT_ADMIN_PORT}; 0: any free port)",
    )


def check_combination(args: argparse.Namespace) -> None:
    """Raise UsageError if an option was given that has no effect with, or without, ``--serve``."""
    for name in _OF_THE_DEMO if args.serve else _OF_SERVE:
        given = getattr(args, name)
        if given is None or given is False:  # a port may be 0
            continue
        option = f"--{name.replace('_', '-')}"
        if args.serve:
            raise UsageError(f"{option}: has no effect with --serve, which runs no clients and does not end by itself")
        raise UsageError(f"{option}: needs --serve, for your own application as the client")


def options_in(args: argparse.Namespace) -> tuple[ServeOptions, list[str]]:
    """Return the options of ``--serve``, and warnings about them for the user.

    Raises:
        UsageError: An option is invalid.
    """
    options = ServeOptions(
        port=DEFAULT_PORT if args.port is None else args.port,
        admin_port=DEFAULT_ADMIN_PORT if args.admin_port is None else args.admin_port,
        shaping=Shaping(args.shaping),
        quotas=_quotas(args.quota or ()),
    )
    if options.port == options.admin_port != 0:
        raise UsageError(f"--port and --admin-port: must differ, and both are {options.port}")
    texts = list(options.quotas)
    # Only quotas can be at fault. Which ports are used is known later.
    text = proxy_config(options, port=1, admin_port=2, upstream="127.0.0.1:3")
    try:
        warnings = load_bytes(text.encode(), file="--serve").warnings
    except ConfigError as error:
        raise UsageError("\n".join(_described(fault.key, fault.message, texts) for fault in error.faults)) from error
    return options, [_described(fault.key, fault.message, texts) for fault in warnings]


def proxy_config(options: ServeOptions, *, port: int, admin_port: int, upstream: str) -> str:
    """Return the text of a configuration file for the proxy. ``upstream`` is the address of the embedded broker.

    The text is JSON, which is valid YAML.
    """
    return json.dumps(
        {
            "listeners": [{"name": "demo", "bind": f"127.0.0.1:{port}", "upstream": upstream}],
            "shaping": options.shaping.value,
            "quotas": list(options.quotas.values()),
            "admin": {"bind": f"127.0.0.1:{admin_port}"},
            "testing": True,
            "drain_timeout": _DRAIN_TIMEOUT,
            "log": {"level": "error"},
        },
        indent=2,
    )


def _quotas(texts: Sequence[str]) -> dict[str, dict[str, str | int]]:
    quotas = {text: _rule(text) for text in texts}
    seen: dict[tuple[object, ...], str] = {}
    for text, rule in quotas.items():
        entity = tuple(rule.get(key) for key in _ENTITY)
        if entity in seen:
            raise UsageError(
                f"--quota {text}: is for the same clients as {seen[entity]}; put all keys into one --quota"
            )
        seen[entity] = text
    return quotas


def _rule(text: str) -> dict[str, str | int]:
    rule: dict[str, str | int] = {}
    for pair in _SEPARATOR.split(text):
        key, separator, value = pair.partition("=")
        if not separator:
            raise UsageError(f"--quota {text}: {pair!r} must be KEY=VALUE; an example is --quota {_EXAMPLE}")
        if key not in _KEYS:
            raise UsageError(f"--quota {text}: {key!r} is not a key; the keys are {', '.join(_KEYS)}")
        if key in rule:
            raise UsageError(f"--quota {text}: {key} is given twice")
        # A number in quotes is a name in YAML, and some limits are numbers only.
        rule[key] = int(value) if value.isascii() and value.isdecimal() and key not in _ENTITY else value
    if rule.get("user", USER) not in (USER, DEFAULT.value):
        raise UsageError(
            f"--quota {text}: applies to no client. The embedded broker has no logins, so that every client is the "
            f"user {USER}; name a client-id"
        )
    return rule


def _described(key: str, message: str, texts: Sequence[str]) -> str:
    """Return the message of a fault, with the option in place of the key."""
    match = _QUOTA_FAULT.fullmatch(key)
    if match is None:
        return f"{key}: {message}"
    within = f"{match[2]}: " if match[2] else ""
    return f"--quota {texts[int(match[1])]}: {within}{message}"


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port from 0 to 65535")
    return int(text)
