"""Compares the quotas in force with what entities need: limits that are too tight or too loose, and unused rules.

This module does no I/O and needs no Spark.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.limit_search import Entity

_Bucket = tuple[str, tuple[str, str]]

TOO_TIGHT: Final = "too tight"
TOO_LOOSE: Final = "too loose"
FITS: Final = "fits"
UNUSED: Final = "unused"
NO_LIMIT: Final = "no limit"
# A limit is too loose if it is higher than what its clients need, with headroom, by more than this factor.
LOOSE_FACTOR: Final = 3.0

_KINDS: Final = {kind.label: kind for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}


class InForce(NamedTuple):
    """The limit of an entity, in bytes per second. ``name`` is the user and client-id of the bucket that has it.

    Several entities share a limit if they have the same bucket. ``rule`` is the rule in words, and is empty if only the
    limit is known.
    """

    name: tuple[str, str]
    limit: float
    rule: str = ""


class Unused(NamedTuple):
    """A limit of a rule that no entity in the log has."""

    kind: str
    user: str
    client_id: str
    limit: float


class Use(NamedTuple):
    """What an entity needs, in bytes per second, and what the log says of it.

    ``logged_limit`` is the limit that its last records name, or None. ``logged_share`` is the share of its time in
    which the log says that it was throttled.
    """

    need: float
    logged_limit: float | None
    logged_share: float


class Comparison(NamedTuple):
    """The limits in force, whether each entity's limit fits, and the limits that no entity has."""

    in_force: dict[Entity, InForce]
    states: dict[Entity, str]
    unused: list[Unused]


def compare(current: ProxyConfig | None, uses: Mapping[Entity, Use], *, headroom: float, share: float) -> Comparison:
    """Compare the quotas in force with what entities need.

    ``current`` is a file of these quotas. Without it, the limits in the log are in force. ``share`` is the highest
    share of its time in which a client may be throttled.
    """
    if current is None:
        logged = {entity: (use.logged_limit, entity[1:]) for entity, use in uses.items()}
        in_force = {entity: InForce(name, limit) for entity, (limit, name) in logged.items() if limit is not None}
        unused: list[Unused] = []
    else:
        in_force, unused = limits_in_force(current, uses)
    tight = {}
    for entity, use in uses.items():
        limit = in_force[entity].limit if entity in in_force else None
        # The log says nothing about a limit that was not in force when it was written.
        is_throttled = use.logged_share > share and limit == use.logged_limit
        tight[entity] = limit is not None and (limit < use.need or is_throttled)
    needs = {entity: use.need for entity, use in uses.items()}
    return Comparison(in_force, states(in_force, needs, tight, headroom), unused)


def limits_in_force(config: ProxyConfig, entities: Iterable[Entity]) -> tuple[dict[Entity, InForce], list[Unused]]:
    """Return the limits that these quotas give to the entities of a log, and the limits that none of them has.

    Entities without a limit are left out.
    """
    tables = CandidateQuotas(config=config).tables()
    found: dict[Entity, InForce] = {}
    used: set[tuple[str, QuotaRule]] = set()
    for kind, user, client_id in entities:
        tags, rule, _, limit = tables[kind].resolve(user=user, client_id=client_id)
        if rule is not None:
            used.add((kind, rule))
        if limit is not None and user not in config.principals.exempt:
            words = rule_words(rule.user, rule.client_id) if rule is not None else ""
            found[kind, user, client_id] = InForce((tags[0], tags[1]), limit, words)
    unused = [
        Unused(label, _name(rule.user), _name(rule.client_id), limit)
        for rule in config.quotas
        for label, kind in _KINDS.items()
        if (limit := rule.limits.get(kind.key)) is not None and (label, rule) not in used
    ]
    return found, unused


def rule_words(user: object, client_id: object) -> str:
    """Return the entity of a rule as text, such as user alice, client-id <default>."""
    parts = (f"{key} {name}" for key, name in (("user", user), ("client-id", client_id)) if name is not None)
    return ", ".join(parts)


def states(
    limits: Mapping[Entity, InForce],
    needs: Mapping[Entity, float],
    tight: Mapping[Entity, bool],
    headroom: float = 1.0,
) -> dict[Entity, str]:
    """Return for each entity whether its limit fits.

    ``needs`` contains the rate that each entity needs, and ``tight`` whether its limit is too tight for it. A limit
    that several entities share is too tight if it is for one of them. It is too loose if all of them together need far
    less.
    """
    together: dict[_Bucket, float] = {}
    too_tight: set[_Bucket] = set()
    for entity, limit in limits.items():
        bucket = (entity[0], limit.name)
        together[bucket] = together.get(bucket, 0.0) + needs[entity]
        if tight[entity]:
            too_tight.add(bucket)
    found = dict.fromkeys(needs, NO_LIMIT)
    for entity, limit in limits.items():
        bucket = (entity[0], limit.name)
        is_loose = limit.limit > LOOSE_FACTOR * headroom * together[bucket]
        found[entity] = TOO_TIGHT if bucket in too_tight else TOO_LOOSE if is_loose else FITS
    return found


def _name(name: object) -> str:
    return "" if name is None else str(name)
