"""What a proxy that runs says of a client's priority in its fair call queues: what ``explain`` has from no file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

_TIMEOUT_S: Final = 10.0

# An object for each listener that has a queue, as ``proxy.call_report.report`` makes them.
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
            if response.status != HTTPStatus.OK:
                raise NotToldError(f"answered {response.status}; is it the admin port of a kafka-quota-proxy?")
            queues: Queues = json.loads(response.read())
            return queues
    except (OSError, HTTPException, ValueError) as error:
        raise NotToldError(str(error)) from error


def lines(queues: Queues) -> Iterator[str]:
    """Return what a person reads."""
    yield ""
    if not queues:
        yield "fair_call_queue: none"
    for queue in queues:
        yield f"fair_call_queue at listener {queue['listener']}"
        for user in queue["users"]:
            yield f"  level        {user['level']} of 0 to {queue['levels'] - 1}, 0 goes first"
            yield f"  why          {user['why']}"
            yield f"  identity     {user['identity']}"
        for broker in queue["brokers"]:
            waiting = sum(broker["queue_sizes"])
            slots = f"{broker['in_flight']} of {broker['max_in_flight']} slots in use"
            yield f"  broker       {broker['upstream']}: {slots}, {waiting} waiting"
