"""The interfaces of a store, for the manager, and of the writer of a store that is a topic."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule

# Applies stored changes; they are in force when it returns. Called one at a time, in the order of the changes.
ApplyChanges: TypeAlias = Callable[[Sequence[Change]], Awaitable[None]]


class NotKeptError(Exception):
    """Changes were not stored, or it is unknown whether they were. The text is for the client.

    Attributes:
        error_code: Kafka's; the client may ask again after it.
        may_hold: Outcome unknown: the changes may be stored, or become so.
    """

    def __init__(self, error_code: int, message: str, *, may_hold: bool = False) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.may_hold = may_hold


class QuotaStore(Protocol):
    """Stores rules. All of them, and each change that is stored later, go to the store's ``ApplyChanges``."""

    @property
    def name(self) -> str:
        """The store's place: the source of its rules."""

    @property
    def sources(self) -> Mapping[Entity, str]:
        """The source of each rule that is published from elsewhere and cannot be changed here."""

    async def open(self) -> None:
        """Apply the stored rules, before any client is served.

        Raises:
            OSError: The files cannot be used.
            UnusableStoreError: They are damaged, or another version wrote them.
        """

    async def run(self) -> None:
        """Do the store's background work, until cancelled or done."""

    async def catch_up(self) -> None:
        """Apply every acknowledged change before the next one is decided.

        Raises:
            NotKeptError: It is unknown which those are.
        """

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """Store changes, all or none, and apply them. Called one at a time.

        ``before`` has the rules of their entities on which the changes were decided.

        Raises:
            NotKeptError: They are not stored, or perhaps, with ``may_hold``.
        """

    def detail(self) -> dict[str, object]:
        """Return the store's part of ``/readyz``. For any thread."""

    async def close(self) -> None:
        """Write what is left, and close the store."""


# Key and value of a record; None deletes the key.
Record: TypeAlias = tuple[bytes, bytes | None]


class NotWrittenError(Exception):
    """The topic cannot be written or read; the text says why.

    Attributes:
        may_be_there: Outcome unknown: the records may be in the topic, or be appended later.
        is_final: The same records will fail again.
    """

    def __init__(self, message: str, *, may_be_there: bool = False, is_final: bool = False) -> None:
        super().__init__(message)
        self.may_be_there = may_be_there
        self.is_final = is_final


class TopicWriter(Protocol):
    """Writes a topic: see ``topic_writer``. Calls without a result raise ``NotWrittenError``."""

    async def end_offset(self) -> int:
        """Return the offset behind the last record."""

    async def append(self, records: Sequence[Record]) -> int:
        """Write records, all or none, and return the first one's offset."""

    async def configuration(self) -> Mapping[str, str] | None:
        """Return the topic's configuration; None: the cluster does not say it."""

    async def close(self) -> None:
        """Close the connection."""
