"""Holds a broker's response to an AlterClientQuotas request until this proxy applies the changed quotas.

If the response were sent at once, the proxy could still apply the old limit to the client's next request.
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
from kafka_quota_proxy.proxy.rules.api import MAX_REFUSED_BYTES, MAX_REFUSED_ELEMENTS, Ticket
from kafka_quota_proxy.proxy.rules.broker.broker_rules import in_force
from kafka_quota_proxy.proxy.rules.errors import NONE
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule, entity_of, is_known

# The answer to a larger request is not held, because requests are parsed on the event loop.
MAX_BYTES: Final = MAX_REFUSED_BYTES


class AlterConfirmer(Protocol):
    """The interface for waiting until this proxy applies a change that a broker has acknowledged."""

    def await_change(self, changed: tuple[Alteration, ...], answer: bytes, owner: object) -> Ticket:
        """Return a ticket, to which ``answer`` is added once this proxy applies the changes in ``changed``.

        If this takes longer than a few seconds, the answer is added anyway. The ``owner``, which is the client's
        connection, is woken as soon as the ticket has the answer.
        """


def can_wait(head: RequestHead) -> bool:
    """Return whether the proxy can hold back the response to a quota request.

    It can if it reads the whole request before it forwards it. It does so if it knows the version of the request and
    the request is not too large.
    """
    return is_client_quotas(head.api_key, head.api_version) and head.size_bytes <= MAX_BYTES


class ForwardedAlter:
    """An AlterClientQuotas request that is forwarded to the broker.

    It is the ``Exchange`` for this request in ``proxy.session.handlers.whole_request``.
    """

    api_key = ALTER

    def __init__(self, authority: AlterConfirmer, frame: bytes) -> None:
        self._authority = authority
        self._request = _read(frame)

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """Return the broker's response unchanged."""
        return data[position : position + frame_bytes]

    def await_change(self, answer: bytes, owner: object) -> Ticket | None:
        """Return a ticket, to which ``answer`` is added once this proxy applies the request's changes.

        Return None if the response can be sent at once, because the broker changed nothing.
        """
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
    """Return whether ``rules``, which were read from a broker, include all changes in ``changed``.

    They do if each quota key that a change sets has the new value, and each quota key that a change removes is missing.
    Entities that cannot have a rule at this proxy, such as host names, are left out.
    """
    expected: dict[Entity, dict[str, float | None]] = {}
    for entity, ops in changed:
        names = dict(entity)
        if is_known(names):
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
