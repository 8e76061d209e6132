"""Formats the lines of the audit log. Each line is JSON in ASCII, with the client, the change and the outcome.

This is a line:

    {"time":"2026-01-01T12:00:00.000Z","principal":"admin","client_id":"adminclient-1","address":"10.0.0.5",
     "listener":"clients","entity":{"user":"alice","client-id":null},"asked":{"producer_byte_rate":5242880.0},
     "old":null,"new":{"producer_byte_rate":5242880.0},"result":"applied"}

If the name of a user or client-id is null, the change is about the default entity. If a value in ``asked`` is null, the
client asks to remove that limit, or that term (an expiry, for example). If ``old`` is null, the entity had no rule
before. If ``new`` is null, it has none now.

``result`` is one of these:

* ``applied``: the rule was changed.
* ``validated``: the rule would have been changed, but the request was a dry run.
* ``unchanged``: the change leaves the rule as it was.
* ``refused``: the change was refused.
* ``unknown``: it is unknown whether the rule was or will be changed.

The last two have an error: ``"error":{"code":44,"name":"POLICY_VIOLATION","message":"…"}``.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from kafka_quota_proxy.config.terms import NO_TERMS, written_terms, written_terms_change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.errors import NONE, name_of
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, Outcome

# The most characters of a name, a key or a message.
MAX_TEXT: Final = 256
# The most keys of one entity. There are fewer, but a client may send any number.
MAX_ASKED: Final = 16

_write: Final = json.JSONEncoder(separators=(",", ":")).encode


def audit_line(outcome: Outcome, result: str, origin: Origin, *, unix_ms: int) -> bytes:
    """Return the line about one entity of a request, with a newline. ``result`` is one of ``outcome.RESULTS``."""
    about = {"time": _time(unix_ms), **_about(origin)}
    return f"{_write({**about, **_entity(outcome), **_result(outcome, result)})}\n".encode()


def _about(origin: Origin) -> Mapping[str, str | None]:
    return {
        "principal": _cut(origin.principal),
        "client_id": None if origin.client_id is None else _cut(origin.client_id),
        "address": _cut(origin.address),
        "listener": _cut(origin.listener),
    }


def _entity(outcome: Outcome) -> Mapping[str, object]:
    return {
        "entity": {_cut(kind): None if name is None else _cut(name) for kind, name in outcome.entity[:MAX_ASKED]},
        "asked": {
            **{_cut(key): _number(value) for key, value in outcome.asked[:MAX_ASKED]},
            **({"terms": written_terms_change(outcome.asked_terms)} if outcome.asked_terms else {}),
        },
        "old": _rule(outcome.old),
        "new": _rule(outcome.new),
    }


def _rule(rule: StoredRule | None) -> object:
    if rule is None:
        return None
    return {**rule.limits, **({} if rule.terms == NO_TERMS else {"terms": written_terms(rule.terms)})}


def _result(outcome: Outcome, result: str) -> Mapping[str, object]:
    if outcome.error_code == NONE:
        return {"result": result}
    error = {
        "code": outcome.error_code,
        "name": name_of(outcome.error_code),
        "message": _cut(outcome.error_message or ""),
    }
    return {"result": result, "error": error}


def _number(value: float | None) -> object:
    # A client may ask for NaN or infinity, which JSON does not have.
    return value if value is None or value - value == 0 else str(value)


def _time(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1_000:03d}Z"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
