"""What becomes of a rule at an instant: itself, its limits of that time, or nothing. Times are Unix time.

Expired is expired, whatever else a rule says. Outside its schedule it has the limits of ``otherwise``, or is not there;
a ramp is for the hours within. What is not there is as if nobody had written it: the next of the eight levels holds.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kafka_quota_proxy.config.model import IpRule, QuotaRule
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY
from kafka_quota_proxy.config.ramp import limit_at, next_step_ms, step_of
from kafka_quota_proxy.config.schedule import is_open
from kafka_quota_proxy.config.schedule import next_change_ms as next_change_of_schedule_ms

R = TypeVar("R", bound=QuotaRule | IpRule)


def is_timed(rule: QuotaRule | IpRule) -> bool:
    """Return whether it is not the same at all times."""
    return rule.expires_ms is not None or rule.schedule is not None or rule.ramp is not None


def in_force(rule: R, *, now_ms: int) -> R | None:
    """Return the rule as it holds; None where it is as if it was not there.

    What is returned has the limits of this instant, and is not to be asked about another one.
    """
    if rule.expires_ms is not None and now_ms >= rule.expires_ms:
        return None
    if rule.schedule is not None and not is_open(rule.schedule, now_ms=now_ms):
        otherwise = rule.schedule.otherwise
        return None if otherwise is None else _with_limits(rule, dict(otherwise))
    ramp = rule.ramp
    if ramp is None:
        return rule
    step = step_of(ramp, now_ms=now_ms)
    if step == ramp.steps:
        return rule
    limits = limits_of(rule)
    for key, old in ramp.start:
        # Of a key whose limit was removed since, there is nothing to lead to.
        if key in limits:
            limit = limit_at(ramp, step, old=old, new=limits[key])
            # A step between two whole numbers is the lower one.
            limits[key] = max(1, int(limit)) if KIND_OF_KEY[key].spec.unit.is_whole else limit
    return _with_limits(rule, limits)


def next_change_ms(rule: QuotaRule | IpRule, *, now_ms: int) -> int | None:
    """Return when ``in_force`` may return something else, at the earliest; None: never."""
    if rule.expires_ms is not None and now_ms >= rule.expires_ms:
        return None
    times = (
        rule.expires_ms,
        None if rule.schedule is None else next_change_of_schedule_ms(rule.schedule, now_ms=now_ms),
        None if rule.ramp is None else next_step_ms(rule.ramp, now_ms=now_ms),
    )
    return min((time for time in times if time is not None), default=None)


def limits_of(rule: QuotaRule | IpRule) -> dict[str, float]:
    """Return the limits that a rule sets, by their keys."""
    return dict(rule.limits)


def _with_limits(rule: R, limits: Mapping[str, float]) -> R:
    """Return a rule of the same entity with these limits alone, and nothing that would change them once more."""
    fields: dict[str, Any] = dict(limits) if isinstance(rule, IpRule) else {"limits": limits}
    return replace(rule, **fields, expires_ms=None, schedule=None, ramp=None)
