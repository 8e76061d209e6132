"""What of the time that an answer took is charged to ``request_percentage``."""

from typing import NamedTuple


class Asked(NamedTuple):
    """A request, as far as its service time is concerned."""

    api_key: int
    api_version: int
    size_bytes: int
    max_wait_ms: int = 0
    min_bytes: int = 0
    acks: int = 0


def is_exempt(api_key: int) -> bool:
    return False


def service_ns(asked: Asked, elapsed_ns: int, answer_bytes: int) -> int:
    return elapsed_ns
