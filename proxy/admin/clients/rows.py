"""Describes an active bucket and its clients as a row, which is an object of the JSON of ``/clients``."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from time import monotonic_ns
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl

from kafka_quota_proxy.config.model import Address, QuotaRule
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.admin.clients.active import (
    ActiveBucket,
    Connections,
    active_buckets,
    connections_of,
    pause,
)
from kafka_quota_proxy.proxy.admin.metrics.exposition import Rest, paced
from kafka_quota_proxy.proxy.admin.requests import RefusedError
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.rule_phrases import as_written
from kafka_quota_proxy.proxy.rules.keeper import wall_ms as unix_ms
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.session.state import SessionState

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 10_000
KINDS: Final[Mapping[str, QuotaKind]] = {kind.label: kind for kind in BUCKET_KINDS}
_KEYS: Final = ("kind", "sort", "limit", "user", "client_id")
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
    """Which clients a request wants, and in which order. A name of None stands for every user or client-id."""

    kind: QuotaKind | None = None
    sort: str = SORTS[0]
    limit: int = DEFAULT_LIMIT
    user: str | None = None
    client_id: str | None = None

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


# A client that uses this part of its limit, or more, is near it.
NEAR: Final = 0.8
# A row has at most so many of its clients' addresses.
MAX_ADDRESSES: Final = 20
_ROWS: Final = 20  # rows between two pauses

Row = dict[str, Any]


class ClientPage(NamedTuple):
    """The rows that a query has found. They are made while the caller iterates over them."""

    time: str
    rows: Iterator[Row]
    total: int  # how many rows there would be without the query's limit
    bypasses: Mapping[Address, Address] = {}  # brokers that send clients past the proxy, and where to


class Section(NamedTuple):
    """Some rows, and how many clients and rows of their kind there are."""

    clients: int
    total: int
    rows: list[Row]


class Overview(NamedTuple):
    """The clients as the status page shows them. A client has a row for each kind of quota and each broker."""

    time: str
    clients: int
    total: int
    throttled: Section
    near: Section  # clients that are not throttled, and use at least ``NEAR`` of their limits


class _Moment(NamedTuple):
    """One moment, as two clocks show it. Buckets use the clock that never jumps, and people the other one."""

    now_ms: int
    wall_ms: int

    def iso(self, at_ms: int) -> str:
        at = datetime.fromtimestamp((self.wall_ms - self.now_ms + at_ms) / 1_000, UTC)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ClientTable:
    """Reads the clients of a proxy as rows. Call it in a thread, while the event loop serves clients."""

    def __init__(self, server: Server, *, wall_ms: Callable[[], int] = unix_ms) -> None:
        self._server = server
        self._wall_ms = wall_ms

    def read(self, query: ClientQuery, *, rest: Rest = pause) -> ClientPage:
        """Return the rows that ``query`` asks for. Calls ``rest`` after every few rows to let the event loop run."""
        moment = self._now()
        found = list(active_buckets(self._server, now_ms=moment.now_ms, kind=query.kind, rest=rest))
        if query.user is not None or query.client_id is not None:
            connections = self._connections(found, rest)
            found = [
                one for one in paced(found, rest, every=100) if _matches(query, one, connections.get(one.bucket, ()))
            ]
            chosen = query.first(found, rest)
        else:
            chosen = query.first(found, rest)
            connections = self._connections(chosen, rest)
        total = len(found)
        rows = self._rows(found, chosen, connections, moment, rest)
        return ClientPage(moment.iso(moment.now_ms), rows, total, self._server.brokers.bypasses())

    def overview(self, *, most_throttled: int, most_near: int, rest: Rest = pause) -> Overview:
        """Return how many clients there are, and the rows of those that are throttled or near a limit.

        There are at most ``most_throttled`` and ``most_near`` rows: those that were throttled longest, and those that
        are nearest. Calls ``rest`` as ``read`` does.
        """
        moment = self._now()
        found = list(active_buckets(self._server, now_ms=moment.now_ms, rest=rest))
        throttled: list[ActiveBucket] = []
        near: list[ActiveBucket] = []
        for one in paced(found, rest, every=500):
            if one.is_throttled:
                throttled.append(one)
            elif (one.utilisation or 0.0) >= NEAR:
                near.append(one)
        clients, total = _clients(found, rest), len(found)
        sections = (
            self._section(throttled, ClientQuery(sort="throttled", limit=most_throttled), moment, rest),
            self._section(near, ClientQuery(sort="utilisation", limit=most_near), moment, rest),
        )
        _free((found,), rest)
        return Overview(moment.iso(moment.now_ms), clients, total, *sections)

    def _section(self, found: list[ActiveBucket], query: ClientQuery, moment: _Moment, rest: Rest) -> Section:
        clients, total = _clients(found, rest), len(found)
        chosen = query.first(found, rest)
        connections = self._connections(chosen, rest) if chosen else {}
        return Section(clients, total, list(self._rows(found, chosen, connections, moment, rest)))

    def _now(self) -> _Moment:
        return _Moment(monotonic_ns() // 1_000_000, self._wall_ms())

    def _connections(self, found: list[ActiveBucket], rest: Rest) -> Connections:
        return connections_of(self._server, {one.bucket for one in found}, rest=rest)

    def _rows(
        self,
        found: list[ActiveBucket],
        chosen: list[ActiveBucket],
        connections: Connections,
        moment: _Moment,
        rest: Rest,
    ) -> Iterator[Row]:
        default = self._server.config.enforcement.value
        for one in paced(chosen, rest, every=_ROWS):
            clients = connections.get(one.bucket, ())
            yield _row(one, clients, moment, default)
        _free((chosen, found), rest)


def _clients(found: Iterable[ActiveBucket], rest: Rest) -> int:
    """Return how many clients have these buckets.

    A client has a bucket for each kind of quota and each broker. Some have both of its names and others one of them, as
    the rules of each kind group clients.
    """
    whole: set[Tags] = set()
    partial: set[Tags] = set()
    users: set[str] = set()
    client_ids: set[str] = set()
    for one in paced(found, rest, every=500):
        tags = one.bucket.tags
        if tags.user and tags.client_id:
            whole.add(tags)
            users.add(tags.user)
            client_ids.add(tags.client_id)
        else:
            partial.add(tags)
    others = (tags.user not in users and tags.client_id not in client_ids for tags in paced(partial, rest, every=500))
    return len(whole) + sum(others)


def _free(lists: Iterable[list[ActiveBucket]], rest: Rest) -> None:
    """Empty the lists one object at a time, because many at once would hold the interpreter for several ms."""
    for rows in lists:
        for _ in paced(range(len(rows)), rest, every=500):
            rows.pop()


def _row(one: ActiveBucket, clients: Sequence[ClientConnection], moment: _Moment, enforcement: str) -> Row:
    bucket, limit, utilisation = one.bucket, one.limit, one.utilisation
    history = bucket.usage.throttling.history if one.is_throttled else None
    states = [client.state for client in clients]
    if bucket.enforcement is not None:
        enforcement = bucket.enforcement.value
    elif clients:
        enforcement = clients[0].listener.policy.enforcement.value
    return {
        "kind": bucket.kind.label,
        "user": bucket.tags.user or _only({state.account.principal for state in states}),
        "client_id": bucket.tags.client_id or _only({state.account.client_id for state in states}),
        "addresses": sorted({state.account.peer_host for state in states})[:MAX_ADDRESSES],
        "connections": len(clients),
        "waits_for": waits(states),
        "listener": ", ".join(sorted({client.listener.name for client in clients})) or None,
        "broker": one.broker,
        "rate": round(one.rate, 3),
        "limit": limit,
        "limit_written": None if limit is None else _written(bucket.kind, limit, one.rule),
        "utilisation": None if utilisation is None else round(utilisation, 4),
        "rule": None if one.rule is None else _rule(one.rule),
        "level": None if one.level is None else one.level.number,
        "shaping": None if limit is None else bucket.shaping.value,
        "enforcement": None if limit is None else enforcement,
        "throttled": one.is_throttled,
        "throttled_since": None if history is None else moment.iso(history.since_ms),
        "throttled_for_ms": 0 if history is None else moment.now_ms - history.since_ms,
        "throttle_seconds_last_minute": round(one.throttle_ms / 1_000, 3),
    }


def waits(states: Iterable[SessionState]) -> dict[str, int]:
    """Return how many connections have a request that waits, by what it waits for, the most frequent first."""
    found = Counter(by.value for state in states if (by := state.blocked_by) is not None)
    return dict(found.most_common())


def _matches(query: ClientQuery, one: ActiveBucket, clients: Sequence[ClientConnection]) -> bool:
    """Return whether the names of a bucket, or those of one of its clients where clients share it, are as wanted."""
    user, client_id = one.bucket.tags

    def is_wanted(named_user: str | None, named_client_id: str | None) -> bool:
        return query.user in (None, user or named_user) and query.client_id in (None, client_id or named_client_id)

    if (user and client_id) or not clients:
        return is_wanted(user, client_id)
    return any(is_wanted(client.state.account.principal, client.state.account.client_id) for client in clients)


def _only(names: set[str | None]) -> str | None:
    """Return the name that all clients of a bucket have, or None if they have several or it is not known."""
    return names.pop() if len(names) == 1 else None


def _written(kind: QuotaKind, limit: float, rule: QuotaRule | None) -> str:
    return kind.spec.unit.written(limit if rule is None else as_written(kind, limit, rule))


def _rule(rule: QuotaRule) -> Row:
    names = ("user", rule.user), ("client-id", rule.client_id)
    return {key: None if name is None else str(name) for key, name in names} | {"source": rule.source}
