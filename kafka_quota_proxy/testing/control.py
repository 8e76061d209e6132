"""Asks a running proxy for throttles over HTTP, and reads what it has throttled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

_TIMEOUT_S: Final = 15
_COLUMNS: Final = ("api", "version", "user", "client_id", "broker", "throttle_time_ms", "bytes", "reason")
_MOST_LINES: Final = 50


class ControlError(Exception):
    """Raised if the proxy refuses a request, or does not answer. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledResponse:
    """A response that was throttled.

    Attributes:
        time_ms: The Unix time at which the response began.
        api: The name of the API, such as ``Produce``.
        version: The version of the request.
        user: The user of the connection; ``ANONYMOUS`` without a login.
        client_id: The client-id of the request.
        broker: The node id of the broker that has answered, or None if it is not known.
        throttle_time_ms: The throttle time, in milliseconds.
        bytes: The size of a Produce request, and else of the response.
        reason: ``testing`` if the test asked for it, ``quota`` if it follows from a quota.
    """

    time_ms: int
    api: str
    version: int
    user: str
    client_id: str
    throttle_time_ms: int
    bytes: int
    reason: str
    broker: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClient:
    """A client that has got responses. As a text, it is a line.

    Attributes:
        user: The user; ``ANONYMOUS`` without a login.
        client_id: The client-id.
        responses: How many responses of each API it has got, such as ``{"Metadata": 2, "Produce": 3}``.
    """

    user: str
    client_id: str
    responses: Mapping[str, int]

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {api}" for api, count in self.responses.items())
        return f"client_id={self.client_id!r} user={self.user!r}: {counts}"


class ObservedResponses(Sequence[ThrottledResponse]):
    """Throttled responses, the oldest first. As a text, it is a table."""

    def __init__(self, responses: Sequence[ThrottledResponse]) -> None:
        self._responses = tuple(responses)

    @property
    def throttle_time_ms(self) -> int:
        """The sum of their throttle times, in milliseconds."""
        return sum(one.throttle_time_ms for one in self._responses)

    def __len__(self) -> int:
        return len(self._responses)

    @overload
    def __getitem__(self, index: int) -> ThrottledResponse: ...

    @overload
    def __getitem__(self, index: slice) -> ObservedResponses: ...

    def __getitem__(self, index: int | slice) -> ThrottledResponse | ObservedResponses:
        if isinstance(index, slice):
            return ObservedResponses(self._responses[index])
        return self._responses[index]

    def __repr__(self) -> str:
        if not self._responses:
            return "<no throttled response>"
        start_ms = self._responses[0].time_ms
        rows: list[tuple[str, ...]] = [("after_ms", *_COLUMNS)]
        rows += (
            (str(one.time_ms - start_ms), *(str(getattr(one, name)) for name in _COLUMNS))
            for one in self._responses[-_MOST_LINES:]
        )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        left_out = len(self._responses) - _MOST_LINES
        if left_out > 0:
            lines.insert(1, f"({left_out} earlier ones are left out)")
        return "\n".join([f"<{len(self._responses)} throttled responses, {self.throttle_time_ms} ms in all>", *lines])


class Control:
    """Sends requests to the paths ``/testing`` of an admin port. ``admin`` is its ``HOST:PORT``."""

    def __init__(self, admin: str) -> None:
        self._url = f"http://{admin}/testing"
        # Settings of an HTTP proxy are not for this address.
        self._opener = build_opener(ProxyHandler({}))

    def order(self, order: dict[str, Any]) -> int:
        """Order throttled responses, and return the id of the order."""
        return int(self._ask("POST", "throttles", order)["id"])

    def replace_quotas(self, rules: Sequence[dict[str, Any]]) -> None:
        """Replace all rules."""
        self._ask("PUT", "quotas", rules)

    def observed(self, client_id: str | None) -> ObservedResponses:
        """Return the throttled responses of one client-id, or of all."""
        query = "" if client_id is None else f"?{urlencode({'client_id': client_id})}"
        return ObservedResponses([ThrottledResponse(**one) for one in self._ask("GET", f"observed{query}")])

    def clients(self) -> tuple[SeenClient, ...]:
        """Return the clients that have got responses."""
        return tuple(SeenClient(**one) for one in self._ask("GET", "clients"))

    def reset(self) -> None:
        """Remove all orders, forget what was observed, and restore the first rules."""
        self._ask("POST", "reset")

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - as it is read
        data = None if body is None else json.dumps(body).encode()
        request = Request(  # noqa: S310 - always http
            f"{self._url}/{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                raise ControlError(error.read().decode(errors="replace").strip()) from None
        except OSError as error:
            raise ControlError(f"the proxy does not answer at {self._url}: {error}") from error
