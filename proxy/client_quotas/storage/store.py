"""Defines the interface for storing the quotas that clients set, and the interface for writing to a quota topic."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule

# A function that puts stored changes in force before it returns. A store awaits each call before it makes the next,
# and passes the changes in their order.
ApplyChanges: TypeAlias = Callable[[Sequence[Change]], Awaitable[None]]


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


class QuotaStore(Protocol):
    """Stores the quotas that clients set through the proxy, as one rule for each entity.

    When a store is opened, it passes all its rules to an ``ApplyChanges`` function, which makes the proxy apply them.
    After that, it passes each change to this function as soon as the change is stored.
    """

    @property
    def name(self) -> str:
        """Where the quotas are stored, such as a directory or a topic.

        When rules are listed for a client, this name is shown as the source of the stored rules.
        """

    @property
    def sources(self) -> Mapping[Entity, str]:
        """The entities whose rules cannot be changed through the proxy, and where each of these rules is defined."""

    async def open(self) -> None:
        """Read the stored quotas and make the proxy apply them. This is called before the proxy serves clients.

        Raises:
            OSError: The files of the store cannot be used.
            UnusableStoreError: The files are damaged, or another version of the proxy wrote them.
        """

    async def run(self) -> None:
        """Do the background work of the store, if it has any, until cancelled."""

    async def catch_up(self) -> None:
        """Make the proxy apply all changes of quotas that have been stored so far, including those of other proxies.

        The quota manager calls this before it checks a requested change against the current rules.

        Raises:
            NotKeptError: The store cannot find out whether there are changes of other proxies.
        """

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """Store all of ``changes``, or none of them, and make the proxy apply them. Make only one call at a time.

        ``before`` contains the rules that the changed entities had when the changes were computed.

        Raises:
            NotKeptError: The changes were not stored, or the outcome is unknown (``may_hold``).
        """

    def detail(self) -> dict[str, object]:
        """Return the state of the store, for the response to ``/readyz``. May be called from any thread."""

    async def close(self) -> None:
        """Write all changes that are not written yet, then close the files and connections of the store."""


# The key and the value of a record. The value None deletes the key.
Record: TypeAlias = tuple[bytes, bytes | None]


class NotWrittenError(Exception):
    """Raised if a ``TopicWriter`` cannot write to its topic or read from it.

    Attributes:
        may_be_there: True if the records may be in the topic, or may be appended later.
        is_final: True if another attempt to write the same records would also fail.
    """

    def __init__(self, message: str, *, may_be_there: bool = False, is_final: bool = False) -> None:
        super().__init__(message)
        self.may_be_there = may_be_there
        self.is_final = is_final


class TopicWriter(Protocol):
    """Writes records to a topic. Make only one call at a time. A call that fails raises ``NotWrittenError``."""

    async def end_offset(self) -> int:
        """Return the end offset of the topic: the offset of the last record plus 1."""

    async def append(self, records: Sequence[Record]) -> int:
        """Write all of ``records``, or none of them, and return the offset of the first record."""

    async def configuration(self) -> Mapping[str, str] | None:
        """Return the configuration of the topic, or None if the cluster refuses to describe it."""

    async def close(self) -> None:
        """Close the connection to the cluster."""
