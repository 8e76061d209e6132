"""The clients of a soak, their limits, and the proxy's configuration for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

KIB: Final = 1024
USER: Final = "ANONYMOUS"
LIBRARIES: Final = ("java", "librdkafka", "aiokafka", "kafka-python", "kafkajs")
VISITORS: Final = "visitors"
# Clients that come and go use these client-ids in turn, so that the number of buckets is bounded.
VISITOR_IDS: Final = tuple(f"visitor-{number}" for number in range(12))
VISITOR_RATE: Final = 1024 * KIB
# A visit takes some twenty KB, and its bucket is rarely used: its limit changes without an effect.
VISITOR_RATES: Final = (VISITOR_RATE, 2 * VISITOR_RATE)


class Client(NamedTuple):
    """A client that runs for the whole soak, with a limit of its own.

    ``in_file`` tells where its limit is: in the proxy's file, or in the store, which Kafka's API changes. A paced limit
    can only be in the file, because Kafka's API has no shapes. ``lowest`` and ``highest`` bound the limit.
    """

    library: str
    role: Literal["produce", "consume"]
    in_file: bool
    shaping: Literal["sampled", "paced"]
    by_user: bool
    lowest: int
    highest: int

    @property
    def name(self) -> str:
        """Return the client-id."""
        return f"{self.library}-{self.role}"

    @property
    def key(self) -> str:
        """Return Kafka's name of the limit."""
        return "producer_byte_rate" if self.role == "produce" else "consumer_byte_rate"

    @property
    def entity(self) -> dict[str, str]:
        return {"user": USER, "client-id": self.name} if self.by_user else {"client-id": self.name}

    @property
    def is_idempotent(self) -> bool:
        """Return whether a producer is idempotent. In kafkajs idempotence is experimental."""
        return self.library != "kafkajs"

    @property
    def is_member(self) -> bool:
        """Return whether a consumer is in a group. It may then read again what it has not committed."""
        return self.library in ("java", "aiokafka", "kafkajs")


_WRITES: Final = (40 * KIB, 160 * KIB)
# Lower than those of producers, so that consumers fall behind, and their quota is what limits them.
_READS: Final = (30 * KIB, 100 * KIB)
CLIENTS: Final = (
    Client("java", "produce", True, "sampled", False, *_WRITES),
    Client("java", "consume", False, "sampled", True, *_READS),
    Client("librdkafka", "produce", True, "paced", True, *_WRITES),
    Client("librdkafka", "consume", True, "paced", False, *_READS),
    Client("aiokafka", "produce", False, "sampled", False, *_WRITES),
    Client("aiokafka", "consume", True, "sampled", True, *_READS),
    Client("kafka-python", "produce", False, "sampled", True, *_WRITES),
    Client("kafka-python", "consume", False, "sampled", False, *_READS),
    Client("kafkajs", "produce", True, "paced", False, *_WRITES),
    Client("kafkajs", "consume", False, "sampled", False, *_READS),
)


def settings(
    limits: Mapping[str, int], *, visitor_rate: int, listener: Mapping[str, Any], store: str
) -> dict[str, Any]:
    """Return the proxy's configuration, with the default of every other key."""
    rules = [
        {**client.entity, client.key: limits[client.name], "shaping": client.shaping}
        for client in CLIENTS
        if client.in_file
    ]
    rules += [{"client-id": name, "producer_byte_rate": visitor_rate} for name in VISITOR_IDS]
    return {
        "listeners": [dict(listener)],
        "principals": {"admins": [USER]},
        "store": {"directory": store},
        "quotas": rules,
    }
