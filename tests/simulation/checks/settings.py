"""What the checks have to know of the proxy's configuration, as plain numbers. The world fills it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# After a change of rules, requests of before may still pass under the rules of before for so long.
SETTLE_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force. The defaults are those of ``docs/reference/configuration.md``.

    Attributes:
        shaping: ``sampled`` or ``paced``, for rules without a shaping of their own.
        enforcement: ``respond``, ``delay`` or ``observe``, for rules without an enforcement of their own.
        burst_ms: What an idle client saves up under paced shaping, in ms of its quota.
        max_throttle_ms: The longest wait that one response announces. None: no bound.
        window_num, window_ms: Kafka's ``quota.window.num`` and ``quota.window.size.seconds``.
        max_buckets: The most buckets of one kind at one broker. Beyond it clients share buckets.
        max_buffered: The most bytes that the proxy holds.
        idle_ms: ``idle_timeout``. None: no bound.
        age_ms: ``max_connection_age``. None: no bound.
        limits_connections: Whether a limit on the number or the rate of connections is set.
        limited_ports: The addresses of the listeners for clients, each with the number of its listener.
        max_connections, max_connections_per_host: The most open connections of a listener. None: no limit.
        max_creation_rate: ``max_connection_creation_rate`` of each listener. None: no limit.
        has_proxy_header: Whether connections begin with a PROXY protocol header.
        has_queue: Whether the fair call queue is on.
        max_in_flight: How many requests may be at a broker; None without a queue, or if it is adaptive.
        queue_capacity: The places of the fair call queue, if the file says how many.
        queues_users: Whether those who take turns in the fair call queue are the users, whatever their client-ids.
        hides_addresses: Whether the proxy replaces the addresses of brokers in responses.
        administers_quotas: Whether the proxy itself answers requests about client quotas.
        replication: The section ``replication``. None: followers are not throttled.
    """

    shaping: str = "sampled"
    enforcement: str = "respond"
    burst_ms: float = 1_000.0
    max_throttle_ms: float | None = 25_000.0
    window_num: int = 11
    window_ms: float = 1_000.0
    max_buckets: int = 10_000
    max_buffered: int = 512 << 20
    idle_ms: float | None = None
    age_ms: float | None = None
    limits_connections: bool = False
    limited_ports: dict[tuple[str, int], int] = field(default_factory=dict)
    max_connections: int | None = None
    max_connections_per_host: int | None = None
    max_creation_rate: float | None = None
    has_proxy_header: bool = False
    has_queue: bool = False
    max_in_flight: int | None = None
    queue_capacity: int | None = None
    queues_users: bool = False
    hides_addresses: bool = True
    administers_quotas: bool = False
    replication: Mapping[str, Any] | None = None


_SIZES: Final = {
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "B": 1,
}  # fmt: skip


def number(value: object) -> float:
    """Return a number of the file, such as 10MiB or 5, without its unit."""
    if isinstance(value, int | float):
        return float(value)
    text = str(value).strip()
    for unit, factor in _SIZES.items():
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    return float(text)
