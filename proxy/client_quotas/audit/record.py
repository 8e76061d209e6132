"""A line of the audit log: who asked for which change, from where, and what became of it. JSON, ASCII alone.

    {"time":"2026-01-01T12:00:00.000Z","principal":"admin","client_id":"adminclient-1","address":"10.0.0.5",
     "listener":"clients","entity":{"user":"alice","client-id":null},"asked":{"producer_byte_rate":5242880.0},
     "old":null,"new":{"producer_byte_rate":5242880.0},"result":"applied"}

``null`` as a name is the default entity, as a limit or a term that is asked for its removal, as ``old`` and ``new`` no
rule.
``result`` is ``applied``, ``validated`` (nothing was to be changed), ``unchanged`` (it was so already), ``refused`` or,
where nobody knows whether ``new`` holds or will, ``unknown``; the last two with
``"error":{"code":44,"name":"POLICY_VIOLATION","message":"…"}``.
Where a request was refused as a whole, one line has ``"entities":5000`` in the place of ``entity``, ``asked``, ``old``
and ``new``, and so has the one line of those of a request that are unchanged.
What was changed, or may have been, has a line of its own. Of all else (``validated``, ``unchanged``, ``refused``) there
is one line a second for each principal, result and code: of the first, and then of how many ``entities`` came from
``since`` to ``time``, with what the last of them says of the rest (``proxy.client_quotas.audit.summary``).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from kafka_quota_proxy.config.terms import NO_TERMS, TermsChange, written_terms, written_terms_change
from kafka_quota_proxy.proxy.client_quotas.audit.summary import AttemptSummaries, AttemptSummary
from kafka_quota_proxy.proxy.client_quotas.rules.entity import StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.errors import NONE, name_of
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import APPLIED, UNCHANGED, UNKNOWN, Origin, Outcome

# Of a name, a key or a message.
MAX_TEXT: Final = 256
# Of what is asked for in one entity; there are not so many keys, but clients may make some up.
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
    """Yield the lines of one request, each with its newline; before them, those that are due of earlier ones.

    Args:
        outcomes: Of its entities.
        origin: Who asked.
        sums: Those of this log.
        is_dry_run: Whether nothing was to be changed.
        is_refused_whole: Whether all have the one error, for no reason of their own.
        now_ms: The time of a clock that does not step back.
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
        whose = _entity(unchanged[0]) if len(unchanged) == 1 else {"entities": len(unchanged)}
        yield _line({**about, **whose, "result": UNCHANGED})


def summary_lines(sums: Iterable[AttemptSummary]) -> Iterator[bytes]:
    """Yield the lines of attempts that were summed up, each with its newline."""
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
            **_asked_terms(outcome.asked_terms),
        },
        "old": _rule(outcome.old),
        "new": _rule(outcome.new),
    }


def _rule(rule: StoredRule | None) -> object:
    if rule is None:
        return None
    terms = {} if rule.terms == NO_TERMS else {"terms": written_terms(rule.terms)}
    return {**rule.limits, **terms}


def _asked_terms(change: TermsChange | None) -> dict[str, object]:
    return {} if change is None else {"terms": written_terms_change(change)}


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
    # What a client asked for may be no number that JSON knows.
    return value if value is None or value - value == 0 else str(value)


def _time(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1_000:03d}Z"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
