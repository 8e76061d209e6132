"""What a proxy that runs says of a client's priority in its fair call queues: what ``explain`` has from no file."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

_TIMEOUT_S: Final = 10.0
_MOST_SHOWN: Final = 300

# An object for each listener that has a queue, as ``proxy.admin.priority_api.report`` makes them.
Queues: TypeAlias = Sequence[Mapping[str, Any]]


class NotToldError(Exception):
    """The proxy did not say; the text says why."""


def ask(url: str, user: str, client_id: str, ip: str) -> Queues:
    """Ask a proxy that runs.

    Args:
        url: Of its admin port, ``http://HOST:PORT``.
        user: Without ``User:``.
        client_id: Of its requests.
        ip: Where it comes from, for one that does not log in.

    Raises:
        NotToldError: Nobody answers there, or it is somebody else.
    """
    try:
        address = urlsplit(url)
        if address.scheme != "http" or not address.hostname:
            raise NotToldError("must be http://HOST:PORT, as admin.bind says")
        path = f"/callqueue?{urlencode({'user': user, 'client-id': client_id, 'ip': ip})}"
        with closing(HTTPConnection(address.hostname, address.port or 80, timeout=_TIMEOUT_S)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status == HTTPStatus.MISDIRECTED_REQUEST:
                told = response.read(_MOST_SHOWN).decode("ascii", "replace").strip()
                raise NotToldError(f"answered {response.status}: {told if told.isprintable() else repr(told)}")
            if response.status != HTTPStatus.OK:
                raise NotToldError(f"answered {response.status}; is it the admin port of a kafka-quota-proxy?")
            queues: Queues = json.loads(response.read())
            return queues
    except (OSError, HTTPException, ValueError) as error:
        raise NotToldError(f"{error}; is it what admin.bind says, and does the proxy run?") from error


def lines(queues: Queues, listeners: Iterable[str]) -> Iterator[str]:
    """Return what a person reads; ``listeners`` are those of the file, of which some may have no queue."""
    for queue in queues:
        for user in queue["users"]:
            level = f"priority level {user['level']}, of 0 (served first) to {queue['levels'] - 1}"
            yield ""
            yield f"fair_call_queue at listener {queue['listener']}: {level}"
            yield f"  why          {user['why']}"
            yield f"  identity     {user['identity']}"
            for broker in queue["brokers"]:
                yield from _broker_lines(broker, user["level"], queue["utilisation_floor"])
    queued = {queue["listener"] for queue in queues}
    for name in listeners:
        if name not in queued:
            yield ""
            yield f"fair_call_queue at listener {name}: none"


def _broker_lines(broker: Mapping[str, Any], level: int, floor: float | None) -> Iterator[str]:
    in_use, slots, waiting = broker["in_flight"], broker["max_in_flight"], sum(broker["queue_sizes"])
    yield f"  broker       {broker['upstream']}: {in_use} of {slots} slots in use, {waiting} requests wait"
    if level > 0 and floor is not None and in_use < floor * slots:
        yield f"               below {floor:.0%} of its slots everybody is level 0: so it is there now"
