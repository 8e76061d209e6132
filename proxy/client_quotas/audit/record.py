"""A line of the audit log: the client, its change, and the outcome. JSON in ASCII.

    {"time":"2026-01-01T12:00:00.000Z","principal":"admin","client_id":"adminclient-1","address":"10.0.0.5",
     "listener":"clients","entity":{"user":"alice","client-id":null},"asked":{"producer_byte_rate":5242880.0},
     "old":null,"new":{"producer_byte_rate":5242880.0},"result":"applied"}

A null name is the default entity. A null limit or term in ``asked`` is removed. A null ``old`` or ``new`` is no rule.

``result`` is ``applied``, ``validated`` (a dry run), ``unchanged`` (the rule was so before), ``refused`` or ``unknown``
(``new`` may hold, or may hold later). The last two have an error:
``"error":{"code":44,"name":"POLICY_VIOLATION","message":"…"}``.

A request that was refused as a whole has one line, with ``"entities":5000`` in place of ``entity``, ``asked``, ``old``
and ``new``. So have the unchanged entities of a request.

Each change that is made, or may be, has its line. For the other results there is one line a second for each principal,
result and code: the first attempt, and then the number of ``entities`` from ``since`` to ``time``, with the fields of
the last one (``proxy.client_quotas.audit.summary``).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from kafka_quota_proxy.config.terms import NO_TERMS, written_terms, written_terms_change
from kafka_quota_proxy.proxy.client_quotas.audit.summary import AttemptSummaries, AttemptSummary
from kafka_quota_proxy.proxy.client_quotas.rules.entity import StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.errors import NONE, name_of
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import APPLIED, UNCHANGED, UNKNOWN, Origin, Outcome

# Characters of a name, a key or a message.
MAX_TEXT: Final = 256
# Keys of one entity. There are fewer, but a client may send any.
MAX_ASKED: Final = 16

_write: Final = json.JSONEncoder(separators=(",", ":")).encode


def audit_lines(
    outcomes: Sequence[Outcome],
    origin: Origin,
    sums: AttemptSummaries,
    *,
    is_dry_run: bool,
    is_refused_whole: bool,
    now_ms: int,
    unix_ms: int,
) -> Iterator[bytes]:
    """Yield the lines of one request, each with its newline, behind the summaries that are due.

    Args:
        outcomes: The outcomes of its entities.
        origin: The client.
        sums: The summaries of this log.
        is_dry_run: Whether it is a dry run.
        is_refused_whole: Whether all entities have the same error.
        now_ms: The time of a monotonic clock.
        unix_ms: Unix time.
    """
    yield from summary_lines(sums.take(now_ms=now_ms))
    about = {"time": _time(unix_ms), **_about(origin)}
    add = partial(sums.add, origin=origin, now_ms=now_ms, unix_ms=unix_ms)
    if is_refused_whole and outcomes:
        first = outcomes[0]
        result = first.result(is_dry_run=is_dry_run)
        if add(first, result=result, entities=len(outcomes)):
            yield _line({**about, "entities": len(outcomes), **_result(first, result)})
        return
    unchanged = []
    for outcome in outcomes:
        result = outcome.result(is_dry_run=is_dry_run)
        if result == UNCHANGED:
            unchanged.append(outcome)
        elif result in (APPLIED, UNKNOWN) or add(outcome, result=result, entities=1):
            yield _line({**about, **_entity(outcome), **_result(outcome, result)})
    if unchanged and add(unchanged[0], result=UNCHANGED, entities=len(unchanged)):
        entities = _entity(unchanged[0]) if len(unchanged) == 1 else {"entities": len(unchanged)}
        yield _line({**about, **entities, "result": UNCHANGED})


def summary_lines(sums: Iterable[AttemptSummary]) -> Iterator[bytes]:
    """Yield the lines of summaries, each with its newline."""
    for one in sums:
        times = {"time": _time(one.until_ms), "since": _time(one.since_ms)}
        yield _line({**times, **_about(one.origin), "entities": one.entities, **_result(one.last, one.result)})


def _about(origin: Origin | None) -> Mapping[str, str | None]:
    if origin is None:
        return {"principal": None, "client_id": None, "address": None, "listener": None}
    return {
        "principal": _cut(origin.principal),
        "client_id": None if origin.client_id is None else _cut(origin.client_id),
        "address": _cut(origin.address),
        "listener": _cut(origin.listener),
    }


def _line(fields: Mapping[str, object]) -> bytes:
    return f"{_write(fields)}\n".encode()


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
    terms = {} if rule.terms == NO_TERMS else {"terms": written_terms(rule.terms)}
    return {**rule.limits, **terms}


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
