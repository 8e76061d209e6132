"""Holds the handlers of one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kafka_quota_proxy.proxy.session.handlers.handler import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_quota_proxy.proxy.session.state import SessionState

H = TypeVar("H", bound=Handler)


class HandlerSet:
    """The handlers of one connection. Each one is created for the first request that needs it."""

    __slots__ = ("_by_kind", "_state")

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._by_kind: dict[type[Handler], Handler] = {}

    def __iter__(self) -> Iterator[Handler]:
        """Iterate over the handlers that were created."""
        return iter(self._by_kind.values())

    def get(self, kind: type[H]) -> H:
        """Return the handler of class ``kind``. The first call creates it."""
        found = self._by_kind.get(kind)
        if found is None:
            found = self._by_kind[kind] = kind(self._state)
        return found  # type: ignore[return-value] # the key is its type

    def made(self, kind: type[H]) -> H | None:
        """Return the handler of class ``kind``, or None if no request has needed it yet."""
        return self._by_kind.get(kind)  # type: ignore[return-value] # the key is its type

    def close(self) -> None:
        """Close all handlers, because the connection has ended."""
        for handler in self:
            handler.close()

    def release(self) -> None:
        """Make all handlers stop holding requests and responses back."""
        for handler in self:
            handler.release()
