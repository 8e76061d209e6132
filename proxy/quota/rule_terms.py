"""Computes which limits a rule has at one instant: its own, others, or none because it does not apply.

An expired rule does not apply. A schedule may contain other limits for the times outside of it (``otherwise``). If it
does not, the rule does not apply at these times. A ramp, which changes limits gradually, applies only within the
schedule. If a rule does not apply, the rule at the next of Kafka's eight levels of precedence is looked up
(``entity``). All times are Unix time.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kafka_quota_proxy.config.model import IpRule, QuotaRule
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY
from kafka_quota_proxy.config.schedule import is_open, limit_at, next_step_ms, step_of
from kafka_quota_proxy.config.schedule import next_change_ms as next_change_of_schedule_ms

R = TypeVar("R", bound=QuotaRule | IpRule)


def in_force(rule: R, *, now_ms: int) -> R | None:
    """Return the rule with the limits that it has at ``now_ms``, or None if it does not apply at that time."""
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
        # A limit may have been removed since the ramp began. Then its ramp has no end and does not count.
        if key in limits:
            limit = limit_at(ramp, step, old=old, new=limits[key])
            # The steps of a limit that counts things are rounded down.
            limits[key] = max(1, int(limit)) if KIND_OF_KEY[key].spec.unit.is_whole else limit
    return _with_limits(rule, limits)


def next_change_ms(rule: QuotaRule | IpRule, *, now_ms: int) -> int | None:
    """Return the earliest time after ``now_ms`` at which the rule's limits may change, or None if they never change."""
    if rule.expires_ms is not None and now_ms >= rule.expires_ms:
        return None
    times = (
        rule.expires_ms,
        None if rule.schedule is None else next_change_of_schedule_ms(rule.schedule, now_ms=now_ms),
        None if rule.ramp is None else next_step_ms(rule.ramp, now_ms=now_ms),
    )
    return min((time for time in times if time is not None), default=None)


def limits_of(rule: QuotaRule | IpRule) -> dict[str, float]:
    """Return the limits of a rule by quota key, such as ``producer_byte_rate``."""
    return dict(rule.limits)


def _with_limits(rule: R, limits: Mapping[str, float]) -> R:
    """Return a rule for the same entity with only these limits, and without expiry, schedule and ramp."""
    fields: dict[str, Any] = dict(limits) if isinstance(rule, IpRule) else {"limits": limits}
    return replace(rule, **fields, expires_ms=None, schedule=None, ramp=None)
