"""Reads and writes a rule and its entity in the JSON form that stores keep, which is that of the admin port.

    entity      {"user":"alice","client-id":null}
    rule        {"limits":{"producer_byte_rate":5242880.0},"terms":{"expires":"2026-12-01T00:00:00Z"}}

If a name is null, it stands for the default entity. A rule that is always in force has no ``terms``. The functions that
read raise ``JsonFormError`` if they find anything that this version does not know.
"""

import json
import math
from typing import Final

from kafka_quota_proxy.config.addresses import not_an_ip, usual_ip
from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS, IP_LIMIT_KEYS, KIND_OF_KEY
from kafka_quota_proxy.config.terms import read_terms
from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import JsonFormError, encode, rule_as_json
from kafka_quota_proxy.proxy.client_quotas.rules.entity import (
    ENTITY_TYPES,
    IP,
    Entity,
    StoredRule,
    entity_of,
    names_of,
)

_decode: Final = json.JSONDecoder().decode


def encode_entity(entity: Entity) -> str:
    """Return an entity as JSON. Equal entities always give the same text."""
    return encode(names_of(entity))


def encode_rule(rule: StoredRule) -> str:
    """Return a quota rule as JSON: its limits, and the terms that say when and how they apply."""
    return encode(rule_as_json(rule))


def decode_entity(data: bytes) -> Entity:
    """Read an entity (a user, a client-id, both, or an IP address) from JSON."""
    return read_entity(_json(data))


def decode_rule(entity: Entity, data: bytes) -> StoredRule:
    """Read the quota rule of an entity (a user, a client-id, both, or an IP address) from JSON."""
    given = _json(data)
    if not isinstance(given, dict) or not {"limits"} <= given.keys() <= {"limits", "terms"}:
        raise JsonFormError("a rule has limits, and may have terms")
    return read_rule(entity, given["limits"], given.get("terms", {}))


def read_entity(names: object) -> Entity:
    """Read an entity from parsed JSON, which maps its types to names."""
    if not isinstance(names, dict) or not names or not names.keys() <= set(ENTITY_TYPES):
        raise JsonFormError("not an entity")
    if not all(name is None or (isinstance(name, str) and name) for name in names.values()):
        raise JsonFormError("the name of an entity is neither text nor null")
    if IP in names and len(names) > 1:
        raise JsonFormError("an entity is an address and more")
    ip = names.get(IP)
    if ip is not None and usual_ip(ip) != ip:
        raise JsonFormError(not_an_ip(ip) if usual_ip(ip) is None else f"the usual form of {ip} is {usual_ip(ip)}")
    return entity_of(names)


def read_rule(entity: Entity, limits: object, terms: object) -> StoredRule:
    """Read the rule of an entity from the parsed JSON of its limits and terms."""
    if not isinstance(limits, dict) or not limits:
        raise JsonFormError("a rule has no limits")
    # A rule that was published to a topic may have more keys than Kafka's API.
    unknown = limits.keys() - set(CLIENT_LIMIT_KEYS if entity.ip is None else IP_LIMIT_KEYS)
    if unknown:
        raise JsonFormError(f"{min(unknown)!r} is not a key of {entity}")
    try:
        return StoredRule(limits={key: _limit(key, value) for key, value in limits.items()}, terms=read_terms(terms))
    except TermsError as error:
        raise JsonFormError(f"terms of {entity}: {error}") from None


def _limit(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise JsonFormError(f"{key} is not a number above 0")
    return int(value) if KIND_OF_KEY[key].spec.unit.is_whole else float(value)


def _json(data: bytes) -> object:
    try:
        return _decode(data.decode())
    except (ValueError, RecursionError):
        raise JsonFormError("not JSON") from None
