"""Data classes for the outcome of a requested quota change, and for the client that requested it."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.terms import TermsChange
from kafka_quota_proxy.protocol.client_quotas import Alteration, Altered, EntityParts, Op
from kafka_quota_proxy.proxy.rules.errors import NONE
from kafka_quota_proxy.proxy.rules.model import ENTITY_TYPES, Change, Entity, StoredRule, entity_of, usual_names

# ``Origin.listener`` of a change that came through the admin port.
ADMIN: Final = "admin"

APPLIED: Final = "applied"
VALIDATED: Final = "validated"
UNCHANGED: Final = "unchanged"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"
RESULTS: Final = (APPLIED, VALIDATED, UNCHANGED, REFUSED, UNKNOWN)


class Origin(NamedTuple):
    """The client that requests a change of quotas, as recorded in the log of changes.

    Attributes:
        principal: The user, or ``token@ADDRESS`` for a client of the admin port that has a token.
        listener: The name of the listener to which the client is connected, or ``ADMIN`` for the admin port.
    """

    principal: str
    client_id: str | None = None
    address: str = ""
    listener: str = ""


class Outcome(NamedTuple):
    """The outcome of a requested quota change for one entity, such as a user.

    Attributes:
        asked: The quota keys that the request sets, such as ``producer_byte_rate``, with the new limits. A limit of
            None removes the key.
        asked_terms: The terms (expiry, schedule, ramp) that the request sets or removes, or None if there are none.
        old: The rule of the entity before the change.
        new: The rule after the change, or the rule that a dry run would have stored. The same as ``old`` if the change
            was refused.
        is_unknown: True if the proxy does not know whether the change was stored. The stored rule may then be ``old``
            or ``new``, or become ``new`` later.
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
        """Return the outcome as one of ``RESULTS``, such as ``APPLIED`` or ``REFUSED``."""
        if self.is_unknown:
            return UNKNOWN
        # As in Kafka, an entity that comes twice has an error although its first change is made.
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
    """Return the outcome for each entity of a request, in the order of the request.

    An entity that appears twice in the request has one outcome. ``changes`` contains the changes that were made, or
    that a dry run would make. ``rules`` contains the rules before the changes. ``results`` contains a result for each
    entity in the same order, or the same error for each alteration.
    """
    changed = dict(changes)
    results = tuple(results)
    seen: set[frozenset[tuple[str, str | None]]] = set()
    found = []
    for parts, ops in alterations:
        names = usual_names(parts)
        same = frozenset(names.items())
        if same not in seen:
            result = results[len(seen)]
            seen.add(same)
            entity = entity_of(names) if names and names.keys() <= set(ENTITY_TYPES) else Entity()
            old = rules.get(entity)
            # An entity that comes twice has both an error and a change.
            new = changed.get(entity, old)
            found.append(Outcome(parts, ops, terms.get(entity), old, new, result.error_code, result.error_message))
    return tuple(found)
