"""Computes the difference between two sets of rules, as lines for people and as changes to send to a proxy.

    + user alice, client-id <default>: producer_byte_rate 10MiB
    ~ user bob: consumer_byte_rate 1MiB -> 2MiB
    - client-id reports: request_percentage 50

Each line is about one key of one entity. ``+`` means that the key is added, ``~`` changed and ``-`` removed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafka_quota_proxy.config.terms import TermsChange, replacement, written_terms
from kafka_quota_proxy.protocol.client_quotas import Alteration, Op
from kafka_quota_proxy.proxy.rules.codec import RequestedChanges
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule, keys_of, names_of
from kafka_quota_proxy.proxy.rules.text import in_order, shown_entity, shown_limit, shown_term


class Difference(NamedTuple):
    """Holds the old and the new rule of one entity. Either is None if the entity has no rule."""

    entity: Entity
    old: StoredRule | None
    new: StoredRule | None


def differences(old: Mapping[Entity, StoredRule], new: Mapping[Entity, StoredRule | None]) -> tuple[Difference, ...]:
    """Return a difference for each entity in ``new`` whose rule in ``old`` is another one or is missing.

    ``new`` contains None for an entity whose rule is to be removed. Entities that are only in ``old`` keep their rules.
    """
    return tuple(
        Difference(entity, old.get(entity), rule) for entity, rule in new.items() if not _is_same(old.get(entity), rule)
    )


def lines(difference: Difference) -> Iterator[str]:
    """Yield a line of text for each limit or term that differs, in the format shown at the top of this module."""
    name = shown_entity(difference.entity)
    before, after = _shown_by_key(difference.old), _shown_by_key(difference.new)
    for key in (*before, *(key for key in after if key not in before)):
        if key not in after:
            yield f"- {name}: {key} {before[key]}"
        elif key not in before:
            yield f"+ {name}: {key} {after[key]}"
        elif before[key] != after[key]:
            yield f"~ {name}: {key} {before[key]} -> {after[key]}"


def changes_of(some: Iterable[Difference], *, is_dry_run: bool) -> RequestedChanges:
    """Return the changes to request from a proxy, so that each entity gets exactly its new rule.

    The result is the same even if another client has changed an entity's old rule meanwhile.
    """
    alterations: list[Alteration] = []
    terms: dict[Entity, TermsChange] = {}
    for entity, _, new in some:
        limits = {} if new is None else new.limits
        keys = (*limits, *(key for key in keys_of(entity) if key not in limits))
        alterations.append(Alteration(tuple(names_of(entity).items()), tuple(Op(key, limits.get(key)) for key in keys)))
        if new is not None:
            terms[entity] = replacement(new.terms)
    return RequestedChanges(tuple(alterations), terms, is_dry_run)


def _shown_by_key(rule: StoredRule | None) -> dict[str, str]:
    if rule is None:
        return {}
    limits = {key: shown_limit(key, value) for key, value in in_order(rule.limits)}
    return limits | {key: shown_term(value) for key, value in written_terms(rule.terms).items()}


def _is_same(one: StoredRule | None, other: StoredRule | None) -> bool:
    if one is None or other is None:
        return one is other
    return dict(one.limits) == dict(other.limits) and one.terms == other.terms
