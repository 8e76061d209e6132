"""What became of one change, and by whom it was asked for."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.terms import TermsChange
from kafka_quota_proxy.protocol.client_quotas import Alteration, Altered, EntityParts, Op
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import ENTITY_TYPES, Entity, StoredRule, entity_of
from kafka_quota_proxy.proxy.client_quotas.rules.errors import NONE

# Where a change came in that did not come through a listener.
ADMIN: Final = "admin"

APPLIED: Final = "applied"
VALIDATED: Final = "validated"
UNCHANGED: Final = "unchanged"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"
RESULTS: Final = (APPLIED, VALIDATED, UNCHANGED, REFUSED, UNKNOWN)


class Origin(NamedTuple):
    """Who asks: a user, or ``token@ADDRESS``.

    Attributes:
        listener: ``ADMIN`` for the admin port, though a listener may be called so, too.
        sees_hidden: Whether he is told of rules that the file's hide, as by the admin port and not by Kafka's API.
    """

    principal: str
    client_id: str | None = None
    address: str = ""
    listener: str = ""
    sees_hidden: bool = False


# Of a request that is not answered here.
NOBODY: Final = Origin("")


class Outcome(NamedTuple):
    """What became of one entity.

    Attributes:
        entity: As it was named.
        asked: The limits that were to be set, or with None removed.
        asked_terms: The terms that were to be set or removed; None: none were.
        old: Its rule before.
        new: Its rule afterwards; where nothing was to be changed, as it would be. Of one that is refused, ``old``.
        error_code: Kafka's; 0 is none.
        error_message: Why.
        is_unknown: Nobody knows whether it is ``old`` or ``new``, or when it will be ``new``.
    """

    entity: EntityParts
    asked: tuple[Op, ...]
    asked_terms: TermsChange | None
    old: StoredRule | None
    new: StoredRule | None
    error_code: int
    error_message: str | None
    is_unknown: bool = False

    def result(self, *, is_dry_run: bool) -> str:
        """Return what became of it, in a word of ``RESULTS``."""
        if self.is_unknown:
            return UNKNOWN
        # An entity that comes twice has an error, and the first of its changes is made: Kafka's way.
        if self.new == self.old:
            return UNCHANGED if self.error_code == NONE else REFUSED
        return VALIDATED if is_dry_run else APPLIED


def outcomes(
    alterations: Iterable[Alteration],
    results: Iterable[Altered],
    changes: Iterable[Change],
    rules: Mapping[Entity, StoredRule],
    terms: Mapping[Entity, TermsChange],
) -> tuple[Outcome, ...]:
    """Return what became of each entity, in the order of the request; of one that comes twice, of both at once.

    Args:
        alterations: Of the request.
        results: On it, as ``decide`` or ``refuse_alter`` returns them.
        changes: What is changed, or would be.
        rules: Before that.
        terms: Of the request.
    """
    told = {_same(result.entity): result for result in results}
    changed = dict(changes)
    asked: dict[frozenset[tuple[str, str | None]], Alteration] = {}
    for alteration in alterations:
        asked.setdefault(_same(alteration.entity), alteration)
    return tuple(
        _outcome(alteration, told[same], changed, rules, terms) for same, alteration in asked.items() if same in told
    )


def _outcome(
    alteration: Alteration,
    result: Altered,
    changed: Mapping[Entity, StoredRule | None],
    rules: Mapping[Entity, StoredRule],
    terms: Mapping[Entity, TermsChange],
) -> Outcome:
    names = dict(alteration.entity)
    entity = entity_of(names) if names and names.keys() <= set(ENTITY_TYPES) else None
    old = None if entity is None else rules.get(entity)
    # What comes twice has an error, and is changed all the same.
    new = old if entity is None else changed.get(entity, old)
    return Outcome(
        entity=alteration.entity,
        asked=alteration.ops,
        asked_terms=None if entity is None else terms.get(entity),
        old=old,
        new=new,
        error_code=result.error_code,
        error_message=result.error_message,
    )


def _same(parts: EntityParts) -> frozenset[tuple[str, str | None]]:
    return frozenset(dict(parts).items())
