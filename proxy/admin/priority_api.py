"""Answers ``/callqueue``, which shows and explains the priority levels of users in fair call queues.

In a fair call queue, requests wait for a broker by the level of their user. This code runs in a thread.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, Final

from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler, Standing
from kafka_quota_proxy.proxy.server.brokers.broker import Upstream
from kafka_quota_proxy.proxy.server.brokers.queue import ListenerPriorities
from kafka_quota_proxy.proxy.server.server import Server

_TOP: Final = 10


def report(server: Server, *, principal: str | None, client_id: str, host: str) -> list[dict[str, Any]]:
    """Return a JSON object for each listener that has a fair call queue, with the priority levels of some users.

    If ``principal`` is None, these are the users whose recent requests have cost the brokers most. Otherwise, each
    object shows one user: the one that the listener takes a client for, if the client has this principal, client-id and
    address (``host``).
    """
    return [
        {
            "listener": listener.name,
            "levels": priorities.settings.levels,
            # Levels apply only while more than this part of a broker's slots is in use. With null, every user has
            # level 0.
            "utilisation_floor": _finite(priorities.scheduler.utilisation_floor),
            "users": [_user(priorities.scheduler, one) for one in _standings(priorities, principal, client_id, host)],
            "average_response_ms": [round(time_ms, 3) for time_ms in priorities.scheduler.average_response_ms],
            "brokers": list(_brokers(server.brokers.upstreams_of(listener))),
        }
        for listener in server.listeners
        if (priorities := listener.priorities) is not None
    ]


def _standings(priorities: ListenerPriorities, principal: str | None, client_id: str, host: str) -> list[Standing]:
    if principal is None:
        return priorities.scheduler.top(_TOP)
    return [priorities.scheduler.standing(priorities.identity(principal, client_id, host))]


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None


def _user(scheduler: DecayScheduler, standing: Standing) -> dict[str, Any]:
    return {
        "identity": standing.identity,
        "level": standing.level,
        "share": round(standing.share, 4),
        "cost_decayed": standing.decayed,
        "cost_raw": standing.raw,
        "why": _why(scheduler, standing),
    }


def _why(scheduler: DecayScheduler, standing: Standing) -> str:
    level, share, begins = standing.level, standing.share, scheduler.thresholds
    if standing.is_service_user:
        return "a service user (decay-scheduler.service-users) is always level 0"
    if not begins:
        return "there is one level only (scheduler.priority.levels)"
    if not isfinite(scheduler.utilisation_floor):
        return "every user is level 0 (scheduler.impl: default, or callqueue.impl: fifo)"
    if standing.raw == 0 and standing.cached_level is None:
        return "it has caused no cost recently: a new user is level 0"
    by_share = bisect_right(begins, share)
    of_all = f"{share:.1%} of the cost of all"
    range_ = f"level {by_share} is {_range(begins, by_share)}"
    if standing.cached_level is None:
        return f"it is new since the last sweep and has {of_all}; {range_}"
    if by_share != level:
        return f"by its share when levels were last set; now it has {of_all}, and {range_}"
    return f"recently it had {of_all}; {range_}"


def _range(begins: Sequence[float], level: int) -> str:
    if level == 0:
        return f"below {begins[0]:.1%}"
    if level == len(begins):
        return f"from {begins[-1]:.1%}"
    return f"from {begins[level - 1]:.1%} to below {begins[level]:.1%}"


def _brokers(upstreams: Iterable[Upstream]) -> Iterator[dict[str, Any]]:
    for upstream in upstreams:
        if upstream.broker.queue is not None:
            dispatcher = upstream.broker.queue.dispatcher
            yield {
                "upstream": str(upstream.address),
                "queue_sizes": dispatcher.queue.sizes,
                "in_flight": dispatcher.in_flight,
                "max_in_flight": dispatcher.limit,
            }
