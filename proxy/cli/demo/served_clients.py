"""Computes what ``demo --serve`` shows about each client, from texts of the proxy's admin port.

This module does no I/O and reads no clock. All times are in seconds on the same clock.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.cli.demo.serve_arguments import USER

_PREFIX: Final = "kafka_quota_proxy_"
_OTHERS: Final = tuple(kind for kind in BUCKET_KINDS if kind not in (QuotaKind.PRODUCE, QuotaKind.FETCH))


class Client(NamedTuple):
    """The names of a client. Each is "" where the rule that applies does not distinguish it."""

    user: str
    client_id: str


_Series = Mapping[tuple[str, Client], float]  # the value of a metric for each kind of quota and client


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The values of the proxy's metrics at one moment."""

    time_s: float
    bytes: _Series
    throttle_s: _Series
    requests: _Series
    limits: _Series  # by the names of the rule, which may be <default>


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedClient:
    """What is shown about a client. Rates and limits are in bytes per second; a limit is None if there is none."""

    client: Client
    produce_rate: float
    produce_limit: float | None
    fetch_rate: float
    fetch_limit: float | None
    other_limits: tuple[str, ...]  # such as "request_percentage 50"
    throttle_time_ms: float  # by quotas, the sum over all requests
    on_demand_ms: float  # by orders at /testing/throttles, likewise


def read_snapshot(metrics: str, *, now_s: float) -> Snapshot:
    """Return the values in the text of ``/metrics``."""
    series: dict[str, dict[tuple[str, Client], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            labels = sample.labels
            if {"kind", "user", "client_id"} <= labels.keys():
                series[sample.name][labels["kind"], Client(labels["user"], labels["client_id"])] = sample.value
    return Snapshot(
        time_s=now_s,
        bytes=series[f"{_PREFIX}bytes_total"],
        throttle_s=series[f"{_PREFIX}throttle_seconds_total"],
        requests=series[f"{_PREFIX}requests_total"],
        limits=series[f"{_PREFIX}quota_limit"],
    )


def read_on_demand(observed: str) -> dict[Client, float]:
    """Return each client's throttle time by orders, in milliseconds, from the text of ``/testing/observed``."""
    sums: dict[Client, float] = defaultdict(float)
    for response in json.loads(observed):
        if response["reason"] == "testing":
            sums[Client(response["user"], response["client_id"])] += response["throttle_time_ms"]
    return sums


def served_clients(before: Snapshot, now: Snapshot, on_demand: Mapping[Client, float]) -> list[ServedClient]:
    """Return the clients in the order of their names, with their rates between two snapshots."""
    clients = {_filled(client) for _, client in now.requests} | on_demand.keys()
    return [
        ServedClient(
            client=client,
            produce_rate=_rate(before, now, QuotaKind.PRODUCE, client),
            produce_limit=_limit(now.limits, QuotaKind.PRODUCE, client),
            fetch_rate=_rate(before, now, QuotaKind.FETCH, client),
            fetch_limit=_limit(now.limits, QuotaKind.FETCH, client),
            other_limits=tuple(
                f"{kind.key} {limit:g}" for kind in _OTHERS if (limit := _limit(now.limits, kind, client)) is not None
            ),
            throttle_time_ms=1_000 * sum(_sum(now.throttle_s, kind, client) for kind in BUCKET_KINDS),
            on_demand_ms=on_demand.get(client, 0),
        )
        for client in sorted(clients)
    ]


def _filled(client: Client) -> Client:
    """Return ``client`` with its user. All clients have the same one, because the broker has no logins."""
    return client._replace(user=client.user or USER)


def _sum(series: _Series, kind: QuotaKind, client: Client) -> float:
    # A rule for a client-id alone has a bucket without a user.
    return sum(series.get((kind.label, each), 0.0) for each in {client, Client("", client.client_id)})


def _rate(before: Snapshot, now: Snapshot, kind: QuotaKind, client: Client) -> float:
    seconds = now.time_s - before.time_s
    return (_sum(now.bytes, kind, client) - _sum(before.bytes, kind, client)) / seconds if seconds > 0 else 0.0


def _limit(limits: _Series, kind: QuotaKind, client: Client) -> float | None:
    """Return the limit of the rule that applies to a client: the first in the order of Kafka's eight levels."""
    users, client_ids = (client.user, DEFAULT.value), (client.client_id, DEFAULT.value)
    with_user = [Client(user, client_id) for user in users for client_id in (*client_ids, "")]
    without_user = [Client("", client_id) for client_id in client_ids]
    levels: Sequence[Client] = [*with_user, *without_user]
    if not client.client_id:
        levels = [Client(user, "") for user in users]
    return next((limits[kind.label, each] for each in levels if (kind.label, each) in limits), None)
