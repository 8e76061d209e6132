r"""Rules as lines of JSON, each with a checksum over itself and all lines before it in its file.

    CHECKSUM SPACE JSON NEWLINE

The checksum is a CRC-32 in eight hexadecimal digits, begun with that of the line before: a line that is changed, gone,
there twice or elsewhere is found out. What the JSON may be::

    {"kafka-quota-store":1,"file":"journal","after":100}                the first line of a journal
    {"kafka-quota-store":1,"file":"snapshot","after":100,"rules":2}     the first line of a snapshot
    {"n":101,"changes":[[KEY,VALUE],[KEY,null]]}                        a journal: what was changed at once
    [KEY,VALUE]                                                         a snapshot: one rule

A KEY is an entity, ``{"user":"alice","client-id":null}`` or ``{"ip":"192.0.2.7"}``; null is the default. A VALUE is
what a rule says, ``{"producer_byte_rate":5242880.0}``; null: there is no rule any more. Both are those of a rule in the
quota topic. Where a rule has terms, its VALUE has them as ``config.terms`` writes them, ``"terms":{"expires":…}``. The
version stays what it was: a program that knows no terms says so and leaves the store alone, as it is to.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS, IP_LIMIT_KEYS
from kafka_quota_proxy.config.terms import read_terms, written_terms
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import (
    ENTITY_TYPES,
    IP,
    Entity,
    StoredRule,
    entity_of,
    names_of,
)

VERSION: Final = 1
JOURNAL: Final = "journal"
SNAPSHOT: Final = "snapshot"

_MAGIC: Final = "kafka-quota-store"
_TERMS: Final = "terms"
_CHECKSUM_BYTES: Final = 8
_write: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_read: Final = json.JSONDecoder().decode


class DamagedLineError(ValueError):
    """A line is not as it was written."""


class ForeignLineError(ValueError):
    """A line is as it was written, and this version does not know what it says."""


# Takes what is not understood of a rule whose entity is.
OnForeign = Callable[[str], None]
# What is read in the place of such a rule, where it is to be told of and no more: no other rule says nothing.
NOT_UNDERSTOOD: Final = StoredRule(limits={})


class Header(NamedTuple):
    """The first line of a file. ``after``: the number of the last change that came before; ``rules``: of a snapshot."""

    file: str
    after: int
    rules: int


class Line(NamedTuple):
    """A line that is as it was written, and the checksum of all up to it."""

    content: Any
    checksum: int


def write_line(content: object, checksum: int) -> tuple[bytes, int]:
    """Return a line behind one of that checksum, and its own."""
    text = _write(content).encode()
    checksum = crc32(text, checksum)
    return b"%08x %s\n" % (checksum, text), checksum


def read_line(line: bytes, checksum: int) -> Line:
    """Read a line, without its newline, behind one of that checksum.

    Raises:
        DamagedLineError: It is not what ``write_line`` wrote there.
    """
    text = line[_CHECKSUM_BYTES + 1 :]
    checksum = crc32(text, checksum)
    # As text: 0A and 0a are not the same.
    if line[: _CHECKSUM_BYTES + 1] != b"%08x " % checksum:
        raise DamagedLineError("a line does not have its checksum")
    try:
        return Line(_read(text.decode()), checksum)
    except (ValueError, RecursionError):
        raise ForeignLineError("a line is not JSON") from None


# -- what lines say


def journal_header(after: int) -> object:
    """Return the first line of a journal."""
    return {_MAGIC: VERSION, "file": JOURNAL, "after": after}


def snapshot_header(after: int, rules: int) -> object:
    """Return the first line of a snapshot."""
    return {_MAGIC: VERSION, "file": SNAPSHOT, "after": after, "rules": rules}


def read_header(content: object) -> Header:
    """Read the first line of either.

    Raises:
        ForeignLineError: It is none, or of another version.
    """
    given = content if isinstance(content, dict) else {}
    version = given.get(_MAGIC)
    if version != VERSION:
        raise ForeignLineError(f"version {version!r}; this program knows {VERSION}")
    names = {_MAGIC, "file", "after", *(("rules",) if given.get("file") == SNAPSHOT else ())}
    if given.keys() != names or given["file"] not in (JOURNAL, SNAPSHOT):
        raise ForeignLineError("not the first line of a journal or a snapshot")
    return Header(given["file"], _whole(given["after"]), _whole(given.get("rules", 0)))


def written_changes(number: int, changes: Iterable[Change]) -> object:
    """Return a line of a journal: changes that are made at once."""
    return {"n": number, "changes": [[names_of(entity), rule and _value(rule)] for entity, rule in changes]}


def read_changes(content: object, on_foreign: OnForeign | None = None) -> tuple[int, tuple[Change, ...]]:
    """Read a line of a journal: its number and what is changed.

    Args:
        content: Of the line.
        on_foreign: Is told of rules that are not understood, which are ``NOT_UNDERSTOOD`` then.

    Raises:
        ForeignLineError: It is none, or without ``on_foreign`` a rule is not understood.
    """
    if not isinstance(content, dict) or content.keys() != {"n", "changes"}:
        raise ForeignLineError("not a change")
    return _whole(content["n"]), tuple(_change(pair, on_foreign) for pair in _list(content["changes"]))


def written_rule(entity: Entity, rule: StoredRule) -> object:
    """Return a line of a snapshot."""
    return [names_of(entity), _value(rule)]


def read_rule(content: object, on_foreign: OnForeign | None = None) -> tuple[Entity, StoredRule]:
    """Read a line of a snapshot. Arguments and errors as of ``read_changes``."""
    entity, rule = _change(content, on_foreign)
    if rule is None:
        raise ForeignLineError("a rule says nothing")
    return entity, rule


def _change(pair: object, on_foreign: OnForeign | None) -> Change:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ForeignLineError("not an entity and its rule")
    entity = _entity(pair[0])
    try:
        return Change(entity, None if pair[1] is None else _rule(entity, pair[1]))
    except ForeignLineError as error:
        if on_foreign is None:
            raise
        on_foreign(str(error))
        return Change(entity, NOT_UNDERSTOOD)


def _value(rule: StoredRule) -> dict[str, object]:
    terms = written_terms(rule.terms)
    return {**rule.limits, _TERMS: terms} if terms else dict(rule.limits)


def _rule(entity: Entity, value: object) -> StoredRule:
    if not isinstance(value, dict) or _TERMS not in value:
        return StoredRule(limits=_limits(entity, value))
    limits = _limits(entity, {key: limit for key, limit in value.items() if key != _TERMS})
    try:
        return StoredRule(limits=limits, terms=read_terms(value[_TERMS]))
    except TermsError as error:
        raise ForeignLineError(f"terms of {entity}: {error}") from None


def _entity(names: object) -> Entity:
    if not isinstance(names, dict) or not names or not names.keys() <= set(ENTITY_TYPES):
        raise ForeignLineError("not an entity")
    if not all(name is None or (isinstance(name, str) and name) for name in names.values()):
        raise ForeignLineError("a name of an entity is neither text nor null")
    if IP in names and len(names) > 1:
        raise ForeignLineError("an entity is an address and more")
    return entity_of(names)


def _limits(entity: Entity, limits: object) -> Mapping[str, float]:
    if not isinstance(limits, dict) or not limits:
        raise ForeignLineError("not the limits of a rule")
    # More than may be set through Kafka's API: a publisher's rule in a topic may have all that a file's has.
    unknown = limits.keys() - set(CLIENT_LIMIT_KEYS if entity.ip is None else IP_LIMIT_KEYS)
    if unknown:
        raise ForeignLineError(f"{min(unknown)!r} is no key of {entity}")
    return {key: _limit(key, value) for key, value in limits.items()}


def _limit(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ForeignLineError(f"{key} is not a number above 0")
    return int(value) if key == "connections" else float(value)


def _whole(number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ForeignLineError("not a whole number")
    return number


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ForeignLineError("not a list")
    return value
