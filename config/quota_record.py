"""Encodes and decodes the records of the quota topic, through which several proxies share their quotas.

The topic is compacted and has one partition. The key of a record is JSON in UTF-8, without spaces and with its fields
in the order below. A name that is null is the default entity, as in Kafka's own API. A field that is absent is not part
of the entity::

    {"user":"alice","client-id":"etl","key":"producer_byte_rate"}   also {"ip":"192.0.2.7","key":…}

The value of a record is a JSON object with one limit: ``{"value":5242880.0}``. If the key is ``terms``, ``value`` is an
object with the terms of the entity's rule (``config.terms``), which this module does not check.

A value that is null, empty or ``{}`` deletes the key. Only one way to write each key is valid, because compaction would
otherwise keep an old record as well as its replacement.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeGuard

from kafka_quota_proxy.config.addresses import not_an_ip, usual_ip
from kafka_quota_proxy.config.model import DEFAULT, MAX_NAME_BYTES, Default, EntityName
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS, IP_LIMIT_KEYS, KIND_OF_KEY
from kafka_quota_proxy.config.strict_json import parse_json
from kafka_quota_proxy.config.units import shown

# Enough for two names of full length in which every byte is escaped.
MAX_KEY_BYTES: Final = 2 * 6 * MAX_NAME_BYTES + 1_024
MAX_VALUE_BYTES: Final = 65_536
TERMS: Final = "terms"
_ENTITY_KEYS: Final = ("user", "client-id", "ip")
_SHOWN: Final = 100

_write: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class FaultKind(Enum):
    """Says whether the key or the value of a record is not valid."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One limit of an entity's rule, or the rule's terms. It applies at all proxies."""

    user: EntityName = None
    client_id: EntityName = None
    ip: EntityName = None
    key: str
    value: float | Mapping[str, object] | None = None  # a limit, or the terms; None if deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFault:
    """Describes why a record of the quota topic is not valid."""

    kind: FaultKind
    key: str  # the key of the record as text, shortened
    message: str
    about: Setting | None = None  # the record without its value; None if the key is not valid

    def __str__(self) -> str:
        return f"{self.kind.value} of {self.key}: {self.message}"


def encode(record: Setting) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record as bytes. The value is None if the record deletes its key.

    Raises ValueError if ``decode`` would not return the same record, for example because a name is not Unicode text.
    """
    key, value = _key_of(record), None if record.value is None else _write({"value": record.value}).encode()
    read = decode(key, value)
    if read != record:
        raise ValueError(f"would be read as: {read}")
    return key, value


def decode(key: bytes | None, value: bytes | None) -> Setting | RecordFault:
    """Return the record that a key and a value encode, or a ``RecordFault`` if one of them is not valid.

    No exception is raised for any bytes.
    """
    try:
        record = _decode_key(key)
    except ValueError as error:
        return RecordFault(kind=FaultKind.KEY, key=_shown(key), message=str(error))
    try:
        return _with_value(record, value)
    except ValueError as error:
        return RecordFault(kind=FaultKind.VALUE, key=_shown(key), message=str(error), about=record)


def _key_of(record: Setting) -> bytes:
    names: dict[str, str | None] = {}
    for key, name in zip(_ENTITY_KEYS, (record.user, record.client_id, record.ip), strict=True):
        if name is not None:
            names[key] = None if isinstance(name, Default) else name
    return _write({**names, "key": record.key}).encode()


def _decode_key(key: bytes | None) -> Setting:
    if key is None:
        raise ValueError("there is none")
    if len(key) > MAX_KEY_BYTES:
        raise ValueError(f"has {len(key)} bytes, which is too long")
    names = _object(key)
    if not names.keys() <= {"key", *_ENTITY_KEYS} or names.keys().isdisjoint(_ENTITY_KEYS):
        raise ValueError("names no entity; give user, client-id or ip, and nothing else but a key")
    if "key" not in names:
        raise ValueError("has no key; give one, such as producer_byte_rate")
    if "ip" in names and not names.keys() <= {"ip", "key"}:
        raise ValueError("ip is an entity of its own, without user or client-id")
    user, client_id, ip = (_entity_name(names[each]) if each in names else None for each in _ENTITY_KEYS)
    if isinstance(ip, str) and usual_ip(ip) != ip:
        # Two forms of one address would be two keys.
        raise ValueError(f"{not_an_ip(ip)}" if usual_ip(ip) is None else f"{shown(ip)} must be written {usual_ip(ip)}")
    record = Setting(user=user, client_id=client_id, ip=ip, key=_quota_key(names["key"], is_ip=ip is not None))
    if _key_of(record) != key:
        raise ValueError("must be written without spaces, in UTF-8, in the order of the format")
    return record


def _entity_name(name: object) -> EntityName:
    if name is None:
        return DEFAULT
    if not isinstance(name, str) or not name:
        raise ValueError("a name is text and not empty, or null for the default")
    size_bytes = len(name.encode())
    if size_bytes > MAX_NAME_BYTES:
        raise ValueError(f"a name has {size_bytes} bytes; at most {MAX_NAME_BYTES} are allowed")
    return name


def _quota_key(key: object, *, is_ip: bool) -> str:
    known = (*(IP_LIMIT_KEYS if is_ip else CLIENT_LIMIT_KEYS), TERMS)
    if not isinstance(key, str) or key not in known:
        raise ValueError(f"key {shown(key)} is not known to this version")
    return key


def _with_value(record: Setting, value: bytes | None) -> Setting:
    if not value:
        return record
    if len(value) > MAX_VALUE_BYTES:
        raise ValueError(f"has {len(value)} bytes, which is too long")
    given = _object(value)
    return replace(record, value=_setting(record.key, given)) if given else record


def _setting(key: str, given: Mapping[str, object]) -> float | Mapping[str, object]:
    """Return the value of a setting: terms, or any limit that Kafka's API accepts."""
    value = given.get("value")
    if given.keys() != {"value"}:
        raise ValueError("a setting has the key value only")
    if key == TERMS:
        if not isinstance(value, dict) or not value:
            raise ValueError("terms must be an object that is not empty")
        return value
    unit = KIND_OF_KEY[key].spec.unit
    if not _is_number(value) or not 0 < value <= (unit.most if unit.is_whole else sys.float_info.max):
        raise ValueError("value is a number above 0, and finite")
    if unit.is_whole and value != int(value):
        raise ValueError(f"{key} is a whole number")
    return int(value) if unit.is_whole else float(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(data: bytes) -> dict[str, object]:
    found = parse_json(data)
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - of the bytes
    return found


def _shown(key: bytes | None) -> str:
    return shown(key[: 4 * _SHOWN].decode("utf-8", "backslashreplace")) if key is not None else "a record"
