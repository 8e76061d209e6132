"""Reads the bodies of requests to the admin port, and refuses requests. Runs in threads."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple
from wsgiref.types import WSGIEnvironment

from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import MAX_BODY_BYTES

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
# The body of a refused request is read up to this size. Otherwise the client would see a reset and not the reason.
_MAX_SKIPPED_BYTES: Final = 8 * MAX_BODY_BYTES
_CHUNK_BYTES: Final = 65_536


class Reply(NamedTuple):
    """An HTTP response. ``kind`` is its content type."""

    status: str
    body: Iterable[bytes]
    kind: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


class RefusedError(Exception):
    """Raised to refuse a request. The response has this status, message and headers."""

    def __init__(self, status: str, message: str, *headers: tuple[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def read_json(environ: WSGIEnvironment) -> bytes:
    """Return the body of a request with JSON. Raises ``RefusedError`` if it is not JSON, too long or incomplete."""
    # A page of another web site can make a browser send forms and text, but not JSON. That needs a CORS preflight
    # request first, which is refused.
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != JSON:
        raise RefusedError("415 Unsupported Media Type", f"send it with Content-Type: {JSON}")
    size = environ.get("CONTENT_LENGTH", "")
    if not (size.isascii() and size.isdigit()):
        raise RefusedError("411 Length Required", "send it with Content-Length, in bytes")
    if len(size) > 10 or int(size) > MAX_BODY_BYTES:
        raise RefusedError(
            "413 Content Too Large", f"the body has {size[:20]} bytes; at most {MAX_BODY_BYTES} are allowed"
        )
    environ["proxy.is_read"] = True
    try:
        body: bytes = environ["wsgi.input"].read(int(size))
    except OSError:
        raise RefusedError("408 Request Timeout", f"{size} bytes did not arrive in time") from None
    if len(body) < int(size):
        raise RefusedError("400 Bad Request", f"{len(body)} of {size} bytes arrived")
    return body


def refusal(refused: RefusedError) -> Reply:
    """Return the response that refuses a request."""
    return Reply(refused.status, (f"{refused}\n".encode(),), headers=refused.headers)


def skip_body(environ: WSGIEnvironment) -> None:
    """Read and discard the body of a refused request, up to ``_MAX_SKIPPED_BYTES``.

    Otherwise the client would see a connection reset instead of the response.
    """
    size = environ.get("CONTENT_LENGTH", "")
    if environ.get("proxy.is_read") or not (size.isascii() and size.isdigit() and len(size) <= 10):
        return
    left = min(int(size), _MAX_SKIPPED_BYTES)
    with suppress(OSError):
        while left > 0 and (read := len(environ["wsgi.input"].read(min(left, _CHUNK_BYTES)))):
            left -= read
