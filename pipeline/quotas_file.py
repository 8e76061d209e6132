"""Reads and writes quota files. A quota file is a configuration file of the proxy, or contains nothing but quotas."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.document import parse
from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import Default, IpRule, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import BYTE_RATES
from kafka_quota_proxy.pipeline.errors import InputError

# Is added to a file that has only quotas, since a configuration needs a listener.
_LISTENER: Final = 'listeners: [{name: clients, bind: "0.0.0.0:9092", upstream: "127.0.0.1:19092"}]'
# Matches the start of a document that is written with braces, such as JSON, after comments and a document marker.
_FLOW_STYLE: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*|---[ \t]*)?\n)*[ \t]*(?:---[ \t]+)?\{")
_DEFAULTS: Final = ProxyConfig(listeners=())


def read_quotas(path: str) -> ProxyConfig:
    """Read a configuration file of the proxy, or a file that contains only quotas.

    Raises InputError with all faults as FILE:LINE: KEY: fault. A rule with an expiry, a schedule or a ramp is a fault,
    since a replay needs a constant limit for each rule.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    try:
        text = data.decode("utf-8", "replace")
        document = parse(text, file=path)
        if isinstance(document.data, dict) and "listeners" not in document.data:
            data = _with_listener(text).encode()
        config = load_bytes(data, file=path).config
    except ConfigError as error:
        raise InputError(str(error).splitlines()) from error
    timed = list(_timed(config))
    if timed:
        raise InputError(timed)
    return config


def _with_listener(text: str) -> str:
    """Add a listener to the text of a file, in such a place that the line numbers of faults stay the same."""
    flow = _FLOW_STYLE.match(text)
    if flow is None:
        return f"{text}\n{_LISTENER}\n"
    return f"{flow[0]}{_LISTENER}, {text[flow.end() :]}"


def _timed(config: ProxyConfig) -> Iterator[str]:
    rules: tuple[QuotaRule | IpRule, ...] = (*config.quotas, *config.ip_quotas)
    for rule in rules:
        for key, given in (("expires", rule.expires_ms), ("schedule", rule.schedule), ("ramp", rule.ramp)):
            if given is not None:
                message = "a replay needs one limit for all times; write that limit, and remove this"
                yield f"{rule.source}: {key}: {message}"


def as_file(rules: Iterable[tuple[QuotaRule, str]], *, head: Iterable[str], held: ProxyConfig = _DEFAULTS) -> str:
    """Return the text of a configuration file with these rules, which ``kafka-quota-proxy check`` accepts.

    ``rules`` has each rule with a comment for its line, which may be empty. The lines of ``head`` become comments at
    the start of the file. ``held`` is the configuration whose enforcement, shaping, burst and max_throttle_time are
    written too, unless they are the defaults.
    """
    lines = [*(f"# {line}".rstrip() for line in head), _LISTENER + "  # put your own here", *_settings(held)]
    lines += ["", "quotas:"]
    written = [f"  - {_rule(rule)}" + (f"  # {why}" if why else "") for rule, why in rules]
    if not written:
        lines[-1] = "quotas: []"
    return "\n".join([*lines, *written]) + "\n"


def _settings(held: ProxyConfig) -> list[str]:
    """Return the YAML lines for the enforcement, throttle time, shaping and burst of ``held``, without defaults."""
    longest_ms = held.max_throttle_time_ms
    written = {
        "enforcement": held.enforcement.value,
        "max_throttle_time_ms": "null" if longest_ms is None else f"{longest_ms}ms",
        "shaping": held.shaping.value,
        "burst_ms": f"{held.burst_ms}ms",
    }
    return [
        f"{name.removesuffix('_ms')}: {value}"
        for name, value in written.items()
        if getattr(held, name) != getattr(_DEFAULTS, name)
    ]


def _rule(rule: QuotaRule) -> str:
    entity = {"user": rule.user, "client-id": rule.client_id}
    parts = [f"{key}: {_text(name)}" for key, name in entity.items() if name is not None]
    parts += [f"{key}: {rule.limits[key]:.0f}" for key in BYTE_RATES if key in rule.limits]
    ways = {"enforcement": rule.enforcement, "shaping": rule.shaping}
    parts += [f"{key}: {way.value}" for key, way in ways.items() if way is not None]
    return "{" + ", ".join(parts) + "}"


def _text(name: str | Default) -> str:
    """Return a user or client-id as YAML: ``<default>`` as it is, and a name in quotes with escapes."""
    if isinstance(name, Default):
        return str(name)
    escaped = "".join(
        f"\\{one}" if one in '"\\' else one if one.isprintable() and ord(one) < 0x10000 else f"\\U{ord(one):08x}"
        for one in name
    )
    return f'"{escaped}"'
