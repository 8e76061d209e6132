"""Defines what a source of quota rules is: a place beside the configuration file from which the proxy takes rules.

A source passes all its rules to the proxy, and then each change. It may also store the changes that administrators
request. ``docs/contributing/add-a-source-of-rules.md`` shows how to write one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule

if TYPE_CHECKING:  # commands that read a source need no event loop
    import asyncio

# A function that puts changes in force before it returns. A source awaits each call before it makes the next, and
# passes changes in their order. If a call raises an exception, the proxy keeps its changes and tries again.
ApplyChanges: TypeAlias = Callable[[Sequence[Change]], Awaitable[None]]


class UnusableSourceError(Exception):
    """Raised if this version cannot read a source. The message gives the reason and tells the operator what to do."""


class NotKeptError(Exception):
    """Raised if changes were not stored, or if it is unknown whether they were. The client receives the message.

    Attributes:
        error_code: Kafka's error code for the response to the client.
        may_hold: True if the changes may have been stored, or may be stored later.
    """

    def __init__(self, error_code: int, message: str, *, may_hold: bool = False) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.may_hold = may_hold


class RuleWriter(Protocol):
    """Stores the changes that administrators request, all of a request or none of them."""

    async def catch_up(self) -> None:
        """Make the proxy apply all changes that are in the source by now, including those of other proxies.

        This is called before a requested change is checked against the current rules.

        Raises:
            NotKeptError: The source cannot find out whether there are changes of other proxies.
        """

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """Store all of ``changes``, or none of them, and make the proxy apply them. Make only one call at a time.

        ``before`` contains the rules that the changed entities had when the changes were computed.

        Raises:
            NotKeptError: The changes were not stored, or the outcome is unknown (``may_hold``).
        """


class RuleSource(Protocol):
    """Reads quota rules from somewhere, and passes them and their changes to the proxy. For use on the event loop.

    Attributes:
        name: The source as the configuration names it, such as a directory or a topic. It is shown with each rule.
        places: The entities whose rules administrators cannot change, and a more precise place of each rule.
        may_serve: Set once the proxy may serve clients: all rules are read, or only the operator can mend the source.
        has_read: Whether all rules have been read at least once.
        is_connected: Whether the source could be read, or written to, the last time.
    """

    name: str
    places: Mapping[Entity, str]
    may_serve: asyncio.Event
    has_read: bool
    is_connected: bool

    @property
    def writer(self) -> RuleWriter | None:
        """What stores the changes that administrators request. None if they cannot change the rules of this source."""

    async def start(self, apply: ApplyChanges) -> None:
        """Open the source, and pass the rules that are on this machine to ``apply``. Later changes go there, too.

        Raises:
            OSError: Files of the source cannot be used.
            UnusableSourceError: Files are damaged, or another version of the proxy wrote them.
        """

    async def changes(self) -> None:
        """Read the source, and pass rules to ``apply`` as they change, until cancelled."""

    def status(self) -> dict[str, object]:
        """Return the state of the source, for the response to ``/readyz``. May be called from any thread."""

    async def stop(self) -> None:
        """Write what is not written yet, and close files and connections. ``changes`` has been cancelled by then."""
