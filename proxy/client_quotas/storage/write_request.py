"""What a store and who writes for it say to each other."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

# Key and value of a record; no value deletes.
Record: TypeAlias = tuple[bytes, bytes | None]


class NotWrittenError(Exception):
    """The topic could not be written, or asked; the text says why.

    Attributes:
        may_be_there: What was to be written may have been, or may be later.
        is_final: It will not be otherwise the next time.
    """

    def __init__(self, message: str, *, may_be_there: bool = False, is_final: bool = False) -> None:
        super().__init__(message)
        self.may_be_there = may_be_there
        self.is_final = is_final


class TopicWriter(Protocol):
    """Who writes: ``proxy.client_quotas.storage.topic_writer``."""

    async def end_offset(self) -> int:
        """Return the offset behind the last record. ``NotWrittenError``: it cannot be known."""

    async def append(self, records: Sequence[Record]) -> int:
        """Write records at once, and return the offset of the first. ``NotWrittenError``: they may not be there."""

    async def configuration(self) -> Mapping[str, str] | None:
        """Return how the topic is configured; None where that is not said. ``NotWrittenError``: nor can it be asked."""

    async def close(self) -> None:
        """Let go of the cluster."""
