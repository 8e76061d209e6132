"""Holds the broker's answer to a change of quotas until this proxy applies the change.

Otherwise the old limit could still apply to the client's next request.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    Alteration,
    AlterRequest,
    EntityParts,
    is_client_quotas,
    read_alter_request,
    read_alter_response,
)
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.client_quotas.api import MAX_REFUSED_BYTES, MAX_REFUSED_ELEMENTS, Ticket
from kafka_quota_proxy.proxy.client_quotas.rules.entity import ENTITY_TYPES, Entity, StoredRule, entity_of
from kafka_quota_proxy.proxy.client_quotas.rules.errors import NONE
from kafka_quota_proxy.proxy.client_quotas.sources.broker_rules import in_force

# The answer to a larger request is not held, because requests are parsed on the event loop.
MAX_BYTES: Final = MAX_REFUSED_BYTES


class AlterConfirmer(Protocol):
    """Finds out when this proxy applies a change that a broker has acknowledged."""

    def await_change(self, changed: tuple[Alteration, ...], answer: bytes, owner: object) -> Ticket:
        """Return a ticket that gets ``answer`` once this proxy applies the changes in ``changed``.

        The wait ends after some seconds in any case. The ``owner`` is woken when the ticket has the answer.
        """


def can_wait(head: RequestHead) -> bool:
    """Return whether a request is received in full before it is forwarded, so that its answer can be held."""
    return is_client_quotas(head.api_key, head.api_version) and head.size_bytes <= MAX_BYTES


class ForwardedAlter:
    """A request to change quotas that is forwarded to the broker (see ``proxy.session.handlers.whole_request``)."""

    api_key = ALTER

    def __init__(self, authority: AlterConfirmer, frame: bytes) -> None:
        self._authority = authority
        self._request = _read(frame)

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """Return the broker's answer as it is."""
        return data[position : position + frame_bytes]

    def await_change(self, answer: bytes, owner: object) -> Ticket | None:
        """Return a ticket that gets the answer once this proxy applies the change, or None if nothing was changed."""
        changed = self._changed(answer)
        return self._authority.await_change(changed, answer, owner) if changed else None

    def _changed(self, answer: bytes) -> tuple[Alteration, ...]:
        request = self._request
        if request is None or request.validate_only:
            return ()
        try:
            results = read_alter_response(answer, request.api_version).results
        except ProtocolError:
            return ()  # the client reports an answer that cannot be parsed
        done = {_names(result.entity) for result in results if result.error_code == NONE}
        return tuple(one for one in request.alterations if one.ops and _names(one.entity) in done)


def has_changes(rules: Mapping[Entity, StoredRule], changed: Iterable[Alteration]) -> bool:
    """Return whether ``rules`` show all changes: each key that was set has its value, and a removed key has none."""
    expected: dict[Entity, dict[str, float | None]] = {}
    for entity, ops in changed:
        names = dict(entity)
        if names and names.keys() <= set(ENTITY_TYPES):
            expected.setdefault(entity_of(names), {}).update(ops)
    return all(
        (rule.limits if (rule := rules.get(entity)) else {}).get(key) == (value and in_force(value))
        for entity, values in expected.items()
        for key, value in values.items()
    )


def _read(frame: bytes) -> AlterRequest | None:
    try:
        return read_alter_request(frame, most_elements=MAX_REFUSED_ELEMENTS)
    except ProtocolError:
        return None  # the broker answers a request that cannot be parsed


def _names(entity: EntityParts) -> frozenset[tuple[str, str | None]]:
    return frozenset(dict(entity).items())
