"""Kafka's own classes, as tests drive them. All times are in ms since the Unix epoch, and may not go backwards."""

from typing import Literal, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, EntityName
from tests.end_to_end.support.artifacts import KAFKA_4, kafka_classpath
from tests.oracles.program import Program

StatisticKind = Literal["rate", "simple-rate", "sum", "average", "token-bucket"]
QuotaName = Literal["produce", "fetch", "request", "mutation"]


def kafka_program() -> Program:
    """Return a running program with Kafka's classes. Releases before 4.4 have some of them elsewhere."""
    return Program("oracles.kafka.KafkaOracle", kafka_classpath(KAFKA_4))


class Tags(NamedTuple):
    """Under which user and client-id a client is charged, and the limit that applies. Without a limit it is huge."""

    user: str
    client_id: str
    limit: float


class Kafka:
    """Drives Kafka's classes in a program. Beginning with new ones ends the use of the earlier ones of that class."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._now_ms = -1

    def _at(self, now_ms: int, *words: object) -> str:
        if now_ms == self._now_ms:
            return self._program.ask(*words)
        self._now_ms = now_ms
        return self._program.ask_all([("clock", now_ms), words])[1]

    # -- one statistic: ``Rate``, ``SimpleRate``, ``WindowedSum``, ``Avg`` or ``TokenBucket`` --

    def begin_statistic(self, kind: StatisticKind, *, samples: int, window_ms: int, limit: float = 1.0) -> None:
        self._program.ask("statistic", kind, samples, window_ms, limit)

    def record(self, value: float, *, now_ms: int) -> None:
        self._at(now_ms, "record", value)

    def measure(self, *, now_ms: int) -> float:
        return float(self._at(now_ms, "measure"))

    def peek(self, *, now_ms: int) -> float:
        """Return what ``measure`` would return, which may drop old samples."""
        return float(self._at(now_ms, "peek"))

    def window_ms(self, *, now_ms: int) -> int:
        """Return the time over which a rate is measured."""
        return int(self._at(now_ms, "window"))

    # -- ``ClientQuotaManager`` and the two classes that extend it --

    def begin_client_quotas(self, kind: QuotaName, *, samples: int = 11, window_s: int = 1) -> None:
        self._program.ask("client-quotas", kind, samples, window_s)

    def limit(self, user: EntityName, client_id: EntityName, limit: float | None, *, now_ms: int) -> None:
        """Set the limit of an entity, or remove it if ``limit`` is None."""
        self._at(now_ms, "limit", _name(user), _name(client_id), "none" if limit is None else limit)

    def charge(self, user: str, client_id: str, amount: float, *, now_ms: int) -> int:
        """Return the throttle time in ms."""
        return int(self._at(now_ms, "charge", user, client_id, amount))

    def tags(self, user: str, client_id: str, *, now_ms: int) -> Tags:
        tagged_user, tagged_client_id, limit = self._at(now_ms, "tags", user, client_id).split("\t")
        return Tags(tagged_user, tagged_client_id, float(limit))

    def mutate(self, user: str, client_id: str, permits: list[int], *, is_strict: bool, now_ms: int) -> tuple[int, int]:
        """Return how many of the changes are refused, and the throttle time in ms. Only a strict quota refuses any."""
        how = "strict" if is_strict else "permissive"
        refused, wait_ms = self._at(now_ms, how, user, client_id, *permits).split("\t")
        return int(refused), int(wait_ms)

    # -- ``ReplicationQuotaManager`` --

    def begin_replication(self, *, samples: int = 11, window_s: int = 1) -> None:
        self._program.ask("replication", samples, window_s)

    def limit_replication(self, limit: float | None, *, now_ms: int) -> None:
        self._at(now_ms, "replication-limit", float(2**63 - 1) if limit is None else limit)

    def replicate(self, size_bytes: int, *, now_ms: int) -> None:
        self._at(now_ms, "replicate", size_bytes)

    def is_replication_exceeded(self, *, now_ms: int) -> bool:
        return self._at(now_ms, "exceeded") == "true"

    # -- ``ConnectionQuotas``, for the listeners "clients" and, between brokers, "brokers" --

    def begin_connections(
        self, *, samples: int = 11, window_s: int = 1, broker: int = 2**31 - 1, listener: int = 2**31 - 1
    ) -> None:
        self._program.ask("connections", samples, window_s, broker, listener)

    def limit_broker(self, limit: int, *, now_ms: int) -> None:
        self._at(now_ms, "broker-limit", limit)

    def limit_address(self, address: EntityName, limit: int | None, *, now_ms: int) -> None:
        self._at(now_ms, "address-limit", _name(address), "none" if limit is None else limit)

    def accept(self, listener: str, *, now_ms: int) -> int:
        """Return for how many ms the listener pauses because of a new connection."""
        return int(self._at(now_ms, "accept", listener))

    def admit(self, listener: str, address: str, *, now_ms: int) -> int:
        """Return for how many ms a refused connection stays open, or 0 if it is served. It comes after the pause."""
        return int(self._at(now_ms, "admit", listener, address))


def _name(name: EntityName) -> str:
    return "-" if name is None else "<default>" if name is DEFAULT else str(name)
