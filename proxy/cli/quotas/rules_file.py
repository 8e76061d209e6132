"""Reads and writes files of quota rules: YAML with a list ``quotas:``, as in a configuration file.

YAML cannot express an entity named ``<default>``, or a limit above 2147483647 that is not a byte rate.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.document import parse
from kafka_quota_proxy.config.errors import ConfigError, Fault, UnitError
from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import DEFAULT, MAX_NAME_BYTES, Default, ProxyConfig
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY, parse_limit
from kafka_quota_proxy.config.terms import TermsChange, replacement, terms_of, written_terms
from kafka_quota_proxy.protocol.client_quotas import Alteration, Op
from kafka_quota_proxy.proxy.rules.codec import RequestedChanges
from kafka_quota_proxy.proxy.rules.model import ENTITY_TYPES, Entity, StoredRule, keys_of, names_of
from kafka_quota_proxy.proxy.rules.text import in_order, shown_entity, shown_limit, shown_term


class Difference(NamedTuple):
    """Holds the old and the new rule of one entity. Either is None if the entity has no rule."""

    entity: Entity
    old: StoredRule | None
    new: StoredRule | None


def differences(old: Mapping[Entity, StoredRule], new: Mapping[Entity, StoredRule | None]) -> tuple[Difference, ...]:
    """Return a difference for each entity in ``new`` whose rule in ``old`` is another one or is missing.

    ``new`` contains None for an entity whose rule is to be removed. Entities that are only in ``old`` keep their rules.
    """
    return tuple(
        Difference(entity, old.get(entity), rule) for entity, rule in new.items() if not _is_same(old.get(entity), rule)
    )


def lines(difference: Difference) -> Iterator[str]:
    """Yield a line of text for each limit or term that differs, in the format shown at the top of this module."""
    name = shown_entity(difference.entity)
    before, after = _shown_by_key(difference.old), _shown_by_key(difference.new)
    for key in (*before, *(key for key in after if key not in before)):
        if key not in after:
            yield f"- {name}: {key} {before[key]}"
        elif key not in before:
            yield f"+ {name}: {key} {after[key]}"
        elif before[key] != after[key]:
            yield f"~ {name}: {key} {before[key]} -> {after[key]}"


def changes_of(some: Iterable[Difference], *, is_dry_run: bool) -> RequestedChanges:
    """Return the changes to request from a proxy, so that each entity gets exactly its new rule.

    The result is the same even if another client has changed an entity's old rule meanwhile.
    """
    alterations: list[Alteration] = []
    terms: dict[Entity, TermsChange] = {}
    for entity, _, new in some:
        limits = {} if new is None else new.limits
        keys = (*limits, *(key for key in keys_of(entity) if key not in limits))
        alterations.append(Alteration(tuple(names_of(entity).items()), tuple(Op(key, limits.get(key)) for key in keys)))
        if new is not None:
            terms[entity] = replacement(new.terms)
    return RequestedChanges(tuple(alterations), terms, is_dry_run)


def _shown_by_key(rule: StoredRule | None) -> dict[str, str]:
    if rule is None:
        return {}
    limits = {key: shown_limit(key, value) for key, value in in_order(rule.limits)}
    return limits | {key: shown_term(value) for key, value in written_terms(rule.terms).items()}


def _is_same(one: StoredRule | None, other: StoredRule | None) -> bool:
    if one is None or other is None:
        return one is other
    return dict(one.limits) == dict(other.limits) and one.terms == other.terms


Rules = Mapping[Entity, StoredRule]

# This line is added to a file that has only quotas, because a configuration needs a listener.
_LISTENER: Final = 'listeners: [{name: clients, bind: "0.0.0.0:9092", upstream: "127.0.0.1:19092"}]'
_EXAMPLE: Final = "quotas: [{user: alice, producer_byte_rate: 10MiB}]"


# -- written


def as_yaml(rules: Mapping[Entity, StoredRule]) -> Iterator[str]:
    """Yield the lines of a YAML file that contains these rules, but for those that YAML cannot express."""
    written = [f"  - {_mapping(*one)}" for one in rules.items() if not_in_yaml(*one) is None]
    yield from ("quotas:", *(written or ["  []"]))


def not_in_yaml(entity: Entity, rule: StoredRule) -> str | None:
    """Return why YAML cannot express a rule, or None if it can."""
    return _not_a_name(entity) or _not_a_limit(rule)


def _not_a_name(entity: Entity) -> str | None:
    for kind, name in zip(ENTITY_TYPES, entity, strict=True):
        if name is None or isinstance(name, Default):
            continue
        if name == DEFAULT.value:
            return f"the name of a {kind} is {DEFAULT.value}, which means the default in YAML"
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
    """Return the rules of a YAML file.

    Raises ConfigError, with a line "FILE:LINE: KEY: fault" for each fault.
    """
    document = parse(data.decode("utf-8", "replace"), file=file)
    keys = document.data if isinstance(document.data, dict) else {}
    others = [key for key in keys if key != "quotas"]
    if "quotas" not in keys or others:
        line = document.line((others[0],)) if others else 1
        message = f"cannot be imported; the file may have only quotas, such as {_EXAMPLE}"
        raise ConfigError([Fault(file=file, line=line, key=others[0] if others else "(file)", message=message)])
    # The listener comes last, so that the line numbers of faults stay the same.
    return _of(load_bytes(data + f"\n{_LISTENER}\n".encode(), file=file).config)


def _of(config: ProxyConfig) -> Rules:
    rules: dict[Entity, StoredRule] = {}
    for rule in config.quotas:
        limits = {key: float(limit) for key, limit in rule.limits.items()}
        rules[Entity(rule.user, rule.client_id)] = StoredRule(limits=limits, terms=terms_of(rule))
    for of_ip in config.ip_quotas:
        rules[Entity(ip=of_ip.ip)] = StoredRule(limits=of_ip.limits, terms=terms_of(of_ip))
    return rules
