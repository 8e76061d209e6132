"""Describes a rule in words: its entity, level and limit, why it does not apply now, and when its limits will change.

The command ``explain`` and the log of throttled clients use the same words.
"""

from collections.abc import Iterator, Mapping

from kafka_quota_proxy.config.model import IpRule, QuotaRule
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY, QuotaKind
from kafka_quota_proxy.config.schedule import (
    Schedule,
    is_open,
    next_change_ms,
    next_step_ms,
    step_of,
    written_days,
    written_minute,
)
from kafka_quota_proxy.config.term_values import written_instant
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.entity import LEVELS, Level


def rule_entity(rule: QuotaRule | IpRule) -> Mapping[str, str]:
    """Return the entity of a rule as a mapping, with Kafka's entity types (such as ``client-id``) as keys."""
    names = {"ip": rule.ip} if isinstance(rule, IpRule) else {"user": rule.user, "client-id": rule.client_id}
    return {key: str(name) for key, name in names.items() if name is not None}


def entity_words(rule: QuotaRule | IpRule) -> str:
    """Return the entity of a rule in words, such as ``user alice, client-id etl``."""
    return ", ".join(f"{key} {name}" for key, name in rule_entity(rule).items())


def rule_words(rule: QuotaRule | IpRule) -> str:
    """Return the entity of a rule in words, and the rule's source, such as ``client-id etl (proxy.yaml:7)``."""
    return f"{entity_words(rule)} ({rule.source})" if rule.source else entity_words(rule)


def level_words(level: Level) -> str:
    """Return the number of a level and the entities that its rules have, such as ``7 of 8: client-id``."""
    return f"{level.number} of {len(LEVELS)}: {level.says}"


def limit_words(key: str, limit: float | None) -> str:
    """Return a limit with the unit in which it was written. ``key`` is that of the quota: ``producer_byte_rate``."""
    if limit is None or limit >= UNLIMITED:
        return "unlimited"
    return KIND_OF_KEY[key].spec.unit.described(limit, limit)


def rate_words(key: str, rate: float, *, limit: float) -> str:
    """Return a rate with the kind of unit in which its limit was written."""
    return KIND_OF_KEY[key].spec.unit.described(round(rate, 2), limit)


def as_written(kind: QuotaKind, limit: float, rule: QuotaRule) -> float:
    """Return ``limit`` as ``rule`` sets it, which knows the unit in which it was written, if it is still the same."""
    of_rule = kind.limit_of(rule)
    return of_rule if of_rule is not None and of_rule == limit else limit


def why_inactive(rule: QuotaRule | IpRule, *, now_ms: int) -> str:
    """Return in words why a rule does not apply now, and when it will apply again. Call this only for such a rule."""
    if rule.expires_ms is not None and now_ms >= rule.expires_ms:
        return f"expired at {written_instant(rule.expires_ms)}"
    return "" if rule.schedule is None else f"outside its schedule ({_words(rule.schedule)}), {_again(rule, now_ms)}"


def upcoming_changes(rule: QuotaRule | IpRule, *, now_ms: int) -> Iterator[str]:
    """Describe in words how the schedule, the ramp (a gradual change of limits) and the expiry change a rule's limits.

    Yields one phrase for the schedule, one for the ramp and one for the expiry, as far as the rule has them. The rule
    must apply now, with its own limits or with the limits that it sets for times outside its schedule.
    """
    if rule.schedule is not None:
        next_ms = next_change_ms(rule.schedule, now_ms=now_ms)
        until = "" if next_ms is None else f" until {written_instant(next_ms)}"
        if not is_open(rule.schedule, now_ms=now_ms):
            yield f"outside its schedule ({_words(rule.schedule)}): the limits under otherwise apply{until}"
            yield from _expiry(rule)
            return
        yield f"within its schedule ({_words(rule.schedule)}){until}"
    if rule.ramp is not None:
        next_ms = next_step_ms(rule.ramp, now_ms=now_ms)
        step = step_of(rule.ramp, now_ms=now_ms)
        next_step = "" if next_ms is None else f", the next at {written_instant(next_ms)}"
        yield f"ramp: step {step} of {rule.ramp.steps}{next_step}"
    yield from _expiry(rule)


def _expiry(rule: QuotaRule | IpRule) -> Iterator[str]:
    if rule.expires_ms is not None:
        yield f"expires at {written_instant(rule.expires_ms)}"


def _again(rule: QuotaRule | IpRule, now_ms: int) -> str:
    next_ms = None if rule.schedule is None else next_change_ms(rule.schedule, now_ms=now_ms)
    if next_ms is None or (rule.expires_ms is not None and next_ms >= rule.expires_ms):
        return "never again"
    return f"again at {written_instant(next_ms)}"


def _words(schedule: Schedule) -> str:
    days = ", ".join(written_days(schedule.days))
    hours = f"{written_minute(schedule.begin_minute)}-{written_minute(schedule.end_minute)}"
    return f"{days} {hours} {schedule.time_zone}"
