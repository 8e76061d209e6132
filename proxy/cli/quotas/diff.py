"""What leads from some rules to others: as lines for a person, and as changes to ask for.

    + user alice, client-id <default>: producer_byte_rate 10MiB
    ~ user bob: consumer_byte_rate 1MiB -> 2MiB
    - client-id reports: request_percentage 50

A line is about one key of one entity. ``+``: it was not there, ``~``: it was another, ``-``: it is there no more.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kafka_quota_proxy.config.terms import TermsChange, replacement, written_terms
from kafka_quota_proxy.protocol.client_quotas import Alteration, Op
from kafka_quota_proxy.proxy.client_quotas.formats.format_rule import in_order, shown_entity, shown_limit, shown_term
from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import Changes
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule, keys_of, names_of


class Difference(NamedTuple):
    """One entity's rule; None: it has none. The two are not alike."""

    entity: Entity
    old: StoredRule | None
    new: StoredRule | None


def differences(old: Mapping[Entity, StoredRule], new: Mapping[Entity, StoredRule | None]) -> tuple[Difference, ...]:
    """Return what differs, in the order of ``new``. What ``new`` does not name stays, None there is to go."""
    return tuple(
        Difference(entity, old.get(entity), rule)
        for entity, rule in new.items()
        if not _are_alike(old.get(entity), rule)
    )


def lines(difference: Difference) -> Iterator[str]:
    """Yield a line for each key that differs."""
    who = shown_entity(difference.entity)
    before, after = _said(difference.old), _said(difference.new)
    for key in (*before, *(key for key in after if key not in before)):
        if key not in after:
            yield f"- {who}: {key} {before[key]}"
        elif key not in before:
            yield f"+ {who}: {key} {after[key]}"
        elif before[key] != after[key]:
            yield f"~ {who}: {key} {before[key]} -> {after[key]}"


def changes_of(some: Iterable[Difference], *, is_dry_run: bool) -> Changes:
    """Return what is to be asked for so that rules are as the differences say, whatever they are by then."""
    alterations: list[Alteration] = []
    terms: dict[Entity, TermsChange] = {}
    for entity, _, new in some:
        limits = {} if new is None else new.limits
        keys = (*limits, *(key for key in keys_of(entity) if key not in limits))
        alterations.append(Alteration(tuple(names_of(entity).items()), tuple(Op(key, limits.get(key)) for key in keys)))
        if new is not None:
            terms[entity] = replacement(new.terms)
    return Changes(tuple(alterations), terms, is_dry_run)


def _said(rule: StoredRule | None) -> dict[str, str]:
    if rule is None:
        return {}
    limits = {key: shown_limit(key, value) for key, value in in_order(rule.limits)}
    return limits | {key: shown_term(value) for key, value in written_terms(rule.terms).items()}


def _are_alike(one: StoredRule | None, other: StoredRule | None) -> bool:
    if one is None or other is None:
        return one is other
    return dict(one.limits) == dict(other.limits) and one.terms == other.terms
