"""Runs an HTTP server whose answers a test decides."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Any]  # the status, and bytes, JSON or the target of a redirect
Asked = dict[str, str]


@contextmanager
def server(answer: Callable[[str, Asked], Answer]) -> Iterator[tuple[str, list[tuple[str, Asked, str | None]]]]:
    """Run a server. Yield its address, and the path, the parameters and the login of each request."""
    asked: list[tuple[str, Asked, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            asked.append((parts.path, query, self.headers["Authorization"]))
            status, body = answer(parts.path, query)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", body)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{running.server_port}", asked
        finally:
            running.shutdown()
            thread.join()
