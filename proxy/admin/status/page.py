"""Serves the files of the status page: HTML, a style sheet and a script. They are read once, at the start."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafka_quota_proxy.proxy.admin.requests import Reply

_FOLDER: Final = Path(__file__).parent
_KINDS: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/status.css": ("page.css", "text/css; charset=utf-8"),
    "/status.js": ("page.js", "text/javascript; charset=utf-8"),
}
# The browser loads these files and the stream from the proxy, and nothing else. It runs no script that is in the HTML.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def page_files() -> Mapping[str, Reply]:
    """Return the response to a request for each of the page's paths."""
    return {path: _reply((_FOLDER / name).read_bytes(), kind) for path, (name, kind) in _KINDS.items()}


def _reply(content: bytes, kind: str) -> Reply:
    return Reply("200 OK", (content,), kind, (("Content-Length", str(len(content))), *_HEADERS))
