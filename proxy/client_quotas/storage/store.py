"""What a manager asks of whoever keeps its quotas."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule

# Is awaited with what has been kept, in its order and one at a time; it is in force when this returns.
Hold: TypeAlias = Callable[[Sequence[Change]], Awaitable[None]]


class NotKeptError(Exception):
    """Changes were not kept, or nobody knows whether they were; the text is for who asked for them.

    Attributes:
        error_code: Kafka's, one after which a client may ask again.
        may_hold: They may be kept, or will be: what becomes of them nobody here knows.
    """

    def __init__(self, error_code: int, message: str, *, may_hold: bool = False) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.may_hold = may_hold


class QuotaStore(Protocol):
    """Keeps rules. What there is, and what is kept from then on, goes to a ``Hold`` that it was made with."""

    @property
    def name(self) -> str:
        """Where that is, as a rule's source is told."""

    @property
    def sources(self) -> Mapping[Entity, str]:
        """Entities whose quotas come from somebody else, who alone can change them, and where they are."""

    async def open(self) -> None:
        """Have what is kept in force, before anybody is served.

        Raises:
            OSError: The place cannot be used.
            ForeignStoreError: Another program has written it.
        """

    async def run(self) -> None:
        """Do what is to be done meanwhile, until cancelled."""

    async def catch_up(self) -> None:
        """Have in force what anybody has been told that it is kept, before the next change is decided on.

        Raises:
            NotKeptError: That cannot be known, so that nothing can be kept, either.
        """

    async def keep(self, changes: Sequence[Change], before: Mapping[Entity, StoredRule]) -> None:
        """Keep these at once, or not at all. They are safe and in force when this returns. Called one at a time.

        Args:
            changes: What has been decided.
            before: The rules that it was decided on, of the same entities; what is the same there has not changed.

        Raises:
            NotKeptError: They are not, or with ``may_hold`` perhaps.
        """

    def detail(self) -> dict[str, object]:
        """Return what ``/readyz`` says of it. Safe from a thread."""

    async def close(self) -> None:
        """Let go of the place."""
