"""Reads and writes files of quota rules.

A file is either YAML with a list ``quotas:``, as in a configuration file, or JSON, as the admin port returns it. JSON
can express every rule that a proxy stores. YAML cannot express an entity named ``<default>``, or a limit above
2147483647 that is not a byte rate.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kafka_quota_proxy.config.document import parse
from kafka_quota_proxy.config.errors import Fault, InvalidConfigError, UnitError
from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import DEFAULT, MAX_NAME_BYTES, Default, ProxyConfig
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY, parse_limit
from kafka_quota_proxy.config.terms import terms_of, written_terms
from kafka_quota_proxy.proxy.rules.codec import JsonFormError, read_rules, written_rule
from kafka_quota_proxy.proxy.rules.model import ENTITY_TYPES, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.text import in_order, shown_limit

Rules = Mapping[Entity, StoredRule]

# This line is added to a file that has only quotas, because a configuration needs a listener.
_LISTENER: Final = 'listeners: [{name: clients, bind: "0.0.0.0:9092", upstream: "127.0.0.1:19092"}]'
_EXAMPLE: Final = "quotas: [{user: alice, producer_byte_rate: 10MiB}]"


# -- written


def as_yaml(rules: Iterable[tuple[Entity, StoredRule, str]]) -> Iterator[str]:
    """Yield the lines of a YAML file that contains these rules.

    Each rule is given as its entity, its limits and terms (such as its expiry), and the text of a comment, which may be
    empty. A rule that YAML cannot express is written only as a comment, with the reason.
    """
    yield "quotas:"
    count = 0
    for entity, rule, why in rules:
        reason = not_in_yaml(entity, rule)
        if reason is not None:
            yield f"  # left out: {_mapping(entity, rule)}: {reason}"
        else:
            count += 1
            yield f"  - {_mapping(entity, rule)}" + (f"  # {why}" if why else "")
    if not count:
        yield "  []"


def not_in_yaml(entity: Entity, rule: StoredRule) -> str | None:
    """Return why YAML cannot express a rule, or None if it can."""
    return _not_a_name(entity) or _not_a_limit(rule)


def _not_a_name(entity: Entity) -> str | None:
    for kind, name in zip(ENTITY_TYPES, entity, strict=True):
        if name is None or isinstance(name, Default):
            continue
        if name == DEFAULT.value:
            return f"the name of a {kind} is {DEFAULT.value}, which means the default in YAML; export as JSON"
        if len(name.encode()) > MAX_NAME_BYTES:
            return f"the name of a {kind} has more than {MAX_NAME_BYTES} bytes"
    return None


def _not_a_limit(rule: StoredRule) -> str | None:
    # A configuration file accepts limits up to the number that means "no limit" in Kafka. Kafka's Admin API accepts
    # higher limits.
    for key, value in in_order(rule.limits):
        if key not in KIND_OF_KEY:
            return f"{key} is unknown"
        text = shown_limit(key, value)
        try:
            parse_limit(key, int(text) if text.isdecimal() else text)
        except UnitError as error:
            return f"{key} cannot be written in YAML: {error}"
    return None


def as_json(rules: Iterable[tuple[Entity, StoredRule]]) -> Iterator[str]:
    """Yield the lines of a JSON file with these rules."""
    yield '{"rules":['
    lines = [written_rule(entity, rule) for entity, rule in rules]
    yield from (f"{line}," for line in lines[:-1])
    yield from lines[-1:]
    yield "]}"


def _mapping(entity: Entity, rule: StoredRule) -> str:
    names = zip(ENTITY_TYPES, entity, strict=True)
    parts = [f"{kind}: {_name(name)}" for kind, name in names if name is not None]
    parts += [f"{key}: {shown_limit(key, value)}" for key, value in in_order(rule.limits)]
    parts += [f"{key}: {_flow(value)}" for key, value in written_terms(rule.terms).items()]
    return "{" + ", ".join(parts) + "}"


def _name(name: str | Default) -> str:
    return str(name) if isinstance(name, Default) else _quoted(name)


def _quoted(text: str) -> str:
    """Return a text as a quoted YAML string, with special characters escaped."""
    escaped = "".join(
        f"\\{one}" if one in '"\\' else one if one.isprintable() and ord(one) < 0x10000 else f"\\U{ord(one):08x}"
        for one in text
    )
    return f'"{escaped}"'


def _flow(value: object) -> str:
    """Return the value of one of a rule's terms, such as its schedule or its expiry, as one line of YAML."""
    if isinstance(value, Mapping):
        parts = (f"{key}: {_limit(key, each) if _is_number(each) else _flow(each)}" for key, each in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(each) for each in value) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _is_number(value: object) -> bool:
    return isinstance(value, float)


def _limit(key: str, value: object) -> str:
    return shown_limit(key, float(value))  # type: ignore[arg-type]


# -- read


def read(data: bytes, *, file: str) -> Rules:
    """Return the rules of a YAML or JSON file.

    Raises ConfigError, with a line "FILE:LINE: KEY: fault" for each fault.
    """
    if _is_json(data):
        return _read_json(data, file)
    document = parse(data.decode("utf-8", "replace"), file=file)
    keys = document.data if isinstance(document.data, dict) else {}
    others = [key for key in keys if key != "quotas"]
    if "quotas" not in keys or others:
        line = document.line((others[0],)) if others else 1
        message = f"cannot be imported; the file may have only quotas, such as {_EXAMPLE}"
        raise InvalidConfigError([Fault(file=file, line=line, key=others[0] if others else "(file)", message=message)])
    # The listener comes last, so that the line numbers of faults stay the same.
    return _of(load_bytes(data + f"\n{_LISTENER}\n".encode(), file=file).config)


def _is_json(data: bytes) -> bool:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "rules" in found


def _read_json(data: bytes, file: str) -> Rules:
    try:
        return {entity: rule for entity, rule, _ in read_rules(data, is_file=True)}
    except JsonFormError as error:
        key, _, message = str(error).partition(": ")
        raise InvalidConfigError([Fault(file=file, line=1, key=key, message=message)]) from error


def _of(config: ProxyConfig) -> Rules:
    rules: dict[Entity, StoredRule] = {}
    for rule in config.quotas:
        limits = {key: float(limit) for key, limit in rule.limits.items()}
        rules[Entity(rule.user, rule.client_id)] = StoredRule(limits=limits, terms=terms_of(rule))
    for of_ip in config.ip_quotas:
        rules[Entity(ip=of_ip.ip)] = StoredRule(limits=of_ip.limits, terms=terms_of(of_ip))
    return rules
