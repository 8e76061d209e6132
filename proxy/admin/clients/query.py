"""Reads the query of a request for clients: which rows it wants, how many, and in which order."""

from collections.abc import Callable, Iterable, Mapping
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl

from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.admin.clients.active import ActiveBucket
from kafka_quota_proxy.proxy.admin.metrics.exposition import Rest, paced
from kafka_quota_proxy.proxy.admin.requests import RefusedError

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 10_000
KINDS: Final[Mapping[str, QuotaKind]] = {kind.label: kind for kind in BUCKET_KINDS}
_KEYS: Final = ("kind", "sort", "limit", "user", "client_id", "details")
# The interpreter sorts so many rows at once. It sorts in one step, which for 10,000 rows would take 10 ms.
_SORTED_AT_ONCE: Final = 500

# For each order: the values by which rows are compared. Rows with lower values come first. Where values are equal, rows
# stay in the order of their buckets, which does not change.
_ORDERS: Final[Mapping[str, Callable[[ActiveBucket], tuple[Any, ...]]]] = {
    "throttled": lambda one: (not one.is_throttled, -one.throttle_ms, -(one.utilisation or 0.0)),
    "utilisation": lambda one: (-(one.utilisation or 0.0),),
    "rate": lambda one: (-one.rate,),
    "connections": lambda one: (-one.bucket.holders,),
    "user": lambda one: (one.bucket.tags.user,),
    "client_id": lambda one: (one.bucket.tags.client_id,),
}
SORTS: Final = tuple(_ORDERS)


class ClientQuery(NamedTuple):
    """Which clients a request wants, and in which order.

    ``details`` adds the rules that lost, and the last throttles. A name of None stands for every user or client-id.
    """

    kind: QuotaKind | None = None
    sort: str = SORTS[0]
    limit: int = DEFAULT_LIMIT
    user: str | None = None
    client_id: str | None = None
    details: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a query such as ``kind=produce&limit=10``.

        Raises:
            RefusedError: The query is not valid. The message names the parameter and the values that it may have.
        """
        try:
            given = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=len(_KEYS))
        except ValueError as error:
            raise RefusedError("400 Bad Request", f"the query is not valid: {error}") from None
        values: dict[str, str] = {}
        for key, value in given:
            if key not in _KEYS or key in values:
                fault = "is given twice" if key in values else "is not a parameter"
                raise RefusedError("400 Bad Request", f"{key[:40]!r} {fault}; the parameters are {', '.join(_KEYS)}")
            values[key] = value
        return cls(
            kind=KINDS[_one_of(KINDS, "kind", values["kind"])] if "kind" in values else None,
            sort=_one_of(_ORDERS, "sort", values["sort"]) if "sort" in values else SORTS[0],
            limit=_limit(values["limit"]) if "limit" in values else DEFAULT_LIMIT,
            user=values.get("user"),
            client_id=values.get("client_id"),
            details=_one_of(("true", "false"), "details", values.get("details", "false")) == "true",
        )

    def first(self, found: list[ActiveBucket], rest: Rest) -> list[ActiveBucket]:
        """Return the first ``limit`` of ``found``, in the wanted order. Calls ``rest`` to let the event loop run."""
        order = _ORDERS[self.sort]
        runs = []
        for start in range(0, len(found), _SORTED_AT_ONCE):
            run = sorted(found[start : start + _SORTED_AT_ONCE], key=order)
            runs.append(run[: self.limit])
            rest()
        return list(islice(paced(merge(*runs, key=order), rest, every=100), self.limit))


def _one_of(allowed: Iterable[str], key: str, value: str) -> str:
    if value not in allowed:
        raise RefusedError("400 Bad Request", f"{key} must be one of {', '.join(allowed)}, not {value[:40]!r}")
    return value


def _limit(value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 10 and 1 <= int(value) <= MAX_LIMIT):
        raise RefusedError("400 Bad Request", f"limit must be a whole number from 1 to {MAX_LIMIT}, not {value[:40]!r}")
    return int(value)
