"""What there is to say of the call queues now: whose requests have which level, and why. Read in the admin's thread."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from proxy.call_desk import CallScheduler
from proxy.scheduling.decay import DecayScheduler, Standing
from proxy.server import Server
from proxy.upstream import Upstream

_TOP: Final = 10


def report(server: Server, *, principal: str | None, client_id: str, host: str) -> list[dict[str, Any]]:
    """Return an object for each listener that has a queue.

    Args:
        server: The proxy.
        principal: Of whom; None: those that cost the most.
        client_id: Of the same.
        host: Its address, which is part of the name of who did not log in.
    """
    return [
        {
            "listener": port.name,
            "levels": port.calls.settings.levels,
            "users": [_user(port.calls.scheduler, one) for one in _asked(port.calls, principal, client_id, host)],
            "average_response_ms": [round(time_ms, 3) for time_ms in port.calls.scheduler.average_response_ms],
            "brokers": list(_brokers(server.upstreams_behind(port))),
        }
        for port in server.ports
        if port.calls is not None
    ]


def _asked(calls: CallScheduler, principal: str | None, client_id: str, host: str) -> list[Standing]:
    if principal is None:
        return calls.scheduler.top(_TOP)
    return [calls.scheduler.standing(calls.identity(principal, client_id, host))]


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
    if standing.is_service_user:
        return "a service user: always level 0"
    thresholds = scheduler.thresholds
    level = standing.level
    if standing.cached_level is None:
        seen = "it came since the last sweep, and has"
    elif level != standing.cached_level:
        return f"level {standing.cached_level} by its share; it counts once enough of the slots are in use"
    else:
        seen = "of late it had"
    parts = [f"{seen} {standing.share:.1%} of the cost of all"]
    if level > 0:
        parts.append(f"at least {thresholds[level - 1]:.1%}")
    if level < len(thresholds):
        parts.append(f"below {thresholds[level]:.1%}")
    return ": ".join([parts[0], ", ".join(parts[1:])]) if len(parts) > 1 else parts[0]


def _brokers(upstreams: Iterable[Upstream]) -> Iterator[dict[str, Any]]:
    for upstream in upstreams:
        if upstream.calls is not None:
            dispatcher = upstream.calls.dispatcher
            yield {
                "upstream": str(upstream.address),
                "queue_sizes": dispatcher.queue.sizes,
                "in_flight": dispatcher.in_flight,
                "max_in_flight": dispatcher.limit,
            }
