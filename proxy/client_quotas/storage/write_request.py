"""The interface between a store in a topic and the writer of that topic."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

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
    """Writes a topic: see ``proxy.client_quotas.storage.topic_writer``."""

    async def end_offset(self) -> int:
        """Return the offset behind the last record. ``NotWrittenError``: the topic does not answer."""

    async def append(self, records: Sequence[Record]) -> int:
        """Write records, all or none, and return the first one's offset. ``NotWrittenError``: they are not written."""

    async def configuration(self) -> Mapping[str, str] | None:
        """Return the topic's configuration; None: the cluster does not say it. ``NotWrittenError``: no answer."""

    async def close(self) -> None:
        """Close the connection."""
