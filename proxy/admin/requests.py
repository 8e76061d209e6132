"""Checks where requests to the admin port come from, reads their bodies, and refuses requests."""

from collections.abc import Iterable
from typing import Final, NamedTuple
from wsgiref.types import WSGIEnvironment

from kafka_quota_proxy.config.strict_json import StrictJsonError, parse_json
from kafka_quota_proxy.proxy.rules.codec import MAX_BODY_BYTES

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


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


def refusal(refused: RefusedError) -> Reply:
    """Return the response that refuses a request."""
    return Reply(refused.status, (f"{refused}\n".encode(),), headers=refused.headers)


def bad_request(message: str) -> RefusedError:
    """Return the error that refuses a request because of its body."""
    return RefusedError("400 Bad Request", message)


def check_site(environ: WSGIEnvironment, *, opens_page: bool) -> None:
    """Raise ``RefusedError`` if a browser sent the request for a page of another site.

    ``opens_page`` tells whether the request may open a page of the admin port. A link to it may be on any site.
    """
    # Browsers send Sec-Fetch-Site only over HTTPS and to loopback addresses, and Origin not with each GET request.
    site = environ.get("HTTP_SEC_FETCH_SITE", "none").lower()
    if opens_page and environ.get("HTTP_SEC_FETCH_DEST") == "document":
        site = "none"
    origin = environ.get("HTTP_ORIGIN")
    is_own = origin is None or origin.lower().partition("://")[2] == environ.get("HTTP_HOST", "").lower()
    if site not in ("none", "same-origin") or not is_own:
        raise RefusedError("403 Forbidden", "a page of another web site sent this request (Origin, Sec-Fetch-Site)")


def read_json(environ: WSGIEnvironment, *, may_be_empty: bool = False) -> object:
    """Return the JSON value in the body of a request, or None if it has no body and ``may_be_empty``.

    Raises:
        RefusedError: If the body is not declared as JSON, or is too long, incomplete, or not valid for ``parse_json``.
    """
    # A page of another web site can make a browser send forms and text, but not JSON. That needs a CORS preflight
    # request first, which is refused. So the header is required even without a body.
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != JSON:
        raise RefusedError("415 Unsupported Media Type", f"send it with Content-Type: {JSON}")
    size = environ.get("CONTENT_LENGTH", "")
    if may_be_empty and size in ("", "0"):
        return None
    if not (size.isascii() and size.isdigit()):
        raise RefusedError("411 Length Required", "send it with Content-Length, in bytes")
    if len(size) > 10 or int(size) > MAX_BODY_BYTES:
        raise RefusedError(
            "413 Content Too Large", f"the body has {size[:20]} bytes; at most {MAX_BODY_BYTES} are allowed"
        )
    try:
        body: bytes = environ["wsgi.input"].read(int(size))
    except OSError:
        raise RefusedError("408 Request Timeout", f"{size} bytes did not arrive in time") from None
    if len(body) < int(size):
        raise bad_request(f"{len(body)} of {size} bytes arrived")
    try:
        return parse_json(body)
    except StrictJsonError as error:
        raise bad_request(f"(body): {error}") from None
