"""What no single key can tell: two that clash, and what is allowed but is likely not meant.

Works on the raw values, so that these faults are found together with those of single keys, in one go. Whatever has
the wrong type is passed over here: the schema complains of it.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from config.document import Document, Location, key_path
from config.errors import Fault, Severity, UnitError
from config.model import ANONYMOUS, DEFAULT, Address, Shaping
from config.units import parse_address, parse_rate

_RATES: Final = ("producer_byte_rate", "consumer_byte_rate")
_STATIC_DEFAULTS: Final = ("quota.producer.default", "quota.consumer.default")
_LIKELY_A_UNIT_IS_MISSING: Final = 1_000  # bytes per second; less than one small record
_DEFAULT_SHAPING: Final = Shaping.SAMPLED.value
_WITHOUT_EFFECT: Final = ("replication.quota.window.", "controller.quota.window.")
_ANY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
_OWN_HOST: Final = _ANY_HOST | {"localhost", "127.0.0.1", "::1"}


def check(document: Document) -> list[Fault]:
    """Return faults that concern more than one key, and all warnings."""
    if not isinstance(document.data, dict):
        return []
    faults: list[Fault] = []

    def say(location: Location, message: str, severity: Severity = Severity.ERROR) -> None:
        line = document.line(location)
        faults.append(Fault(file=document.file, line=line, key=key_path(location), message=message, severity=severity))

    def warn(location: Location, message: str) -> None:
        say(location, message, Severity.WARNING)

    _check_listeners(document, say)
    _check_shapings(document, say)
    _check_entities(document, say)
    _check_max_throttle_time(document, say)
    _warn_of_small_rates(document, warn)
    _warn_of_windows(document, warn)
    _warn_of_users_that_never_come(document, warn)
    return faults


_Say = Callable[[Location, str], None]


def _elements(document: Document, *path: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield index and value of each mapping in the list under ``path``."""
    for index, element in enumerate(_list(document, *path)):
        if isinstance(element, dict):
            yield index, element


def _list(document: Document, *path: str) -> list[object]:
    value = document.data
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def _address(value: object) -> Address | None:
    try:
        return parse_address(value) if isinstance(value, str) else None
    except UnitError:
        return None


def _check_listeners(document: Document, say: _Say) -> None:
    names: dict[object, int] = {}
    bound: list[tuple[Address, int]] = []
    for index, listener in _elements(document, "listeners"):
        name = listener.get("name")
        if isinstance(name, str) and name in names:
            message = f"{name!r} is also the name of the listener in line {names[name]}; give each its own"
            say(("listeners", index, "name"), message)
        elif isinstance(name, str):
            names[name] = document.line(("listeners", index, "name"))
        _check_bind(_address(listener.get("bind")), ("listeners", index, "bind"), bound, document, say)
    admin = document.data.get("admin") if isinstance(document.data, dict) else None
    if isinstance(admin, dict):
        _check_bind(_address(admin.get("bind")), ("admin", "bind"), bound, document, say)
    for index, listener in _elements(document, "listeners"):
        upstream = _address(listener.get("upstream"))
        line = next((line for bind, line in bound if upstream and _leads_to(upstream, bind)), None)
        if line is not None:
            message = f"{upstream} is bound by this proxy in line {line}; write the address of the broker"
            say(("listeners", index, "upstream"), message)


def _check_shapings(document: Document, say: _Say) -> None:
    """Listeners in front of one broker share its buckets, and a bucket has one arithmetic."""
    file_wide = document.data.get("shaping", _DEFAULT_SHAPING) if isinstance(document.data, dict) else None
    first: dict[Address, tuple[object, int]] = {}
    for index, listener in _elements(document, "listeners"):
        upstream, shaping = _address(listener.get("upstream")), listener.get("shaping", file_wide)
        if upstream is None:
            continue
        other, line = first.setdefault(upstream, (shaping, document.line(("listeners", index))))
        if other != shaping:
            message = f"the listener in line {line} has shaping {other} and the same upstream, whose buckets they share"
            say(("listeners", index, "shaping"), f"{message}; give both the same")


def _check_bind(
    bind: Address | None, location: Location, bound: list[tuple[Address, int]], document: Document, say: _Say
) -> None:
    if bind is None:
        return
    line = next((line for other, line in bound if _collide(bind, other)), None)
    if line is not None:
        say(location, f"{bind} is already bound in line {line}; give each its own address or port")
    bound.append((bind, document.line(location)))


def _collide(one: Address, other: Address) -> bool:
    # Port 0 is a free one each time.
    same_port = one.port == other.port != 0
    return same_port and (one.host == other.host or not _ANY_HOST.isdisjoint((one.host, other.host)))


def _leads_to(upstream: Address, bind: Address) -> bool:
    own = upstream.host == bind.host or (upstream.host in _OWN_HOST and bind.host in _OWN_HOST)
    return own and upstream.port == bind.port


def _check_entities(document: Document, say: _Say) -> None:
    seen: dict[tuple[object, object], int] = {}
    for index, rule in _elements(document, "quotas"):
        user, client_id = rule.get("user"), rule.get("client-id")
        if not isinstance(user, str | None) or not isinstance(client_id, str | None) or user is client_id is None:
            continue
        first = seen.setdefault((user, client_id), index)
        if first != index:
            line = document.line(("quotas", first))
            entity = ", ".join(
                f"{key} {name}" for key, name in (("user", user), ("client-id", client_id)) if name is not None
            )
            say(("quotas", index), f"{entity} has a rule in line {line} already; put all limits of it into one rule")


def _check_max_throttle_time(document: Document, say: _Say) -> None:
    # To YAML no value is null, and null is no bound: that must be written.
    location = ("max_throttle_time",)
    if isinstance(document.data, dict) and location[0] in document.data and not document.text(location):
        say(location, "has no value; write a duration such as 25s, or null for no bound")


def _warn_of_small_rates(document: Document, warn: _Say) -> None:
    for index, rule in _elements(document, "quotas"):
        for key in _RATES:
            if _is_small(rule.get(key)):
                warn(("quotas", index, key), _small(rule[key]))
    for key in _STATIC_DEFAULTS:
        if _is_small(_kafka(document).get(key)):
            warn(("kafka", key), _small(_kafka(document)[key]))


def _small(rate: object) -> str:
    return f"{rate} bytes per second is very little; is a unit missing, such as {rate}MiB?"


def _is_small(value: object) -> bool:
    # A bare number only: who writes 500B means it.
    if isinstance(value, bool) or not (isinstance(value, int | float) or (isinstance(value, str) and value.isdigit())):
        return False
    try:
        return parse_rate(value) < _LIKELY_A_UNIT_IS_MISSING
    except UnitError:
        return False


def _warn_of_windows(document: Document, warn: _Say) -> None:
    for key in _kafka(document):
        if key.startswith(_WITHOUT_EFFECT):
            warn(("kafka", key), "has no effect in this version, which has no such quotas")


def _kafka(document: Document) -> dict[str, object]:
    kafka = document.data.get("kafka") if isinstance(document.data, dict) else None
    return kafka if isinstance(kafka, dict) else {}


def _warn_of_users_that_never_come(document: Document, warn: _Say) -> None:
    """No listener authenticates in this version: all connections are one user's."""
    folded = _folded_anonymous(document)
    who = ANONYMOUS if folded == ANONYMOUS else f"{ANONYMOUS}, folded to {folded}"
    message = f"no listener authenticates in this version, so that every user is {who}; this has no effect"
    for index, rule in _elements(document, "quotas"):
        user = rule.get("user")
        if isinstance(user, str) and user and user not in (DEFAULT.value, folded):
            warn(("quotas", index, "user"), message)
    for key, matching in (("exempt", (ANONYMOUS, folded)), ("brokers", (ANONYMOUS,))):
        for index, user in enumerate(_list(document, "principals", key)):
            if isinstance(user, str) and user not in ("", DEFAULT.value, *matching):
                warn(("principals", key, index), message)


def _folded_anonymous(document: Document) -> str:
    """Return the user that all connections are charged to; the first rule that matches folds."""
    for _, fold in _elements(document, "principals", "fold"):
        pattern, to = fold.get("match"), fold.get("to")
        if isinstance(pattern, str) and isinstance(to, str):
            try:
                match = re.fullmatch(pattern, ANONYMOUS)
                if match:
                    return match.expand(to)
            except (re.error, IndexError):  # the schema's to complain of
                continue
    return ANONYMOUS
