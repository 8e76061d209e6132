"""What the manager needs of a store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule

# Applies changes that are stored; they are in force when it returns. Called one at a time, in the order of the changes.
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
    """Stores rules. Its rules, and each change that is stored later, go to the ``ApplyChanges`` it was made with."""

    @property
    def name(self) -> str:
        """The store's place, shown as the source of its rules."""

    @property
    def sources(self) -> Mapping[Entity, str]:
        """Entities whose rules are published from elsewhere and cannot be changed here, and from where."""

    async def open(self) -> None:
        """Apply the stored rules, before any client is served.

        Raises:
            OSError: The files cannot be used.
            UnusableStoreError: They are damaged, or another version wrote them.
        """

    async def run(self) -> None:
        """Do the store's background work, until cancelled or there is none."""

    async def catch_up(self) -> None:
        """Apply every acknowledged change before the next one is decided.

        Raises:
            NotKeptError: It is unknown which those are.
        """

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """Store changes, all or none, and apply them. Called one at a time.

        Args:
            changes: The rules of entities, each as a whole.
            before: The rules of these entities on which the changes were decided.

        Raises:
            NotKeptError: They are not stored, or perhaps, with ``may_hold``.
        """

    def detail(self) -> dict[str, object]:
        """Return what ``/readyz`` reports. Safe from a thread."""

    async def close(self) -> None:
        """Write what is left, and close the store."""
