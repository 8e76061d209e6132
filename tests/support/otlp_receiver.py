"""A receiver of OTLP over HTTP, in a thread. It decodes the requests with OpenTelemetry's own messages."""

import gzip
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class OtlpReceiver(ThreadingHTTPServer):
    """Keeps the requests that it receives, and answers them with ``status`` after ``delay_s``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[ExportMetricsServiceRequest] = []
        self.paths: set[str] = set()
        self.tokens: set[str | None] = set()
        self.status = 200
        self.delay_s = 0.0

    @property
    def endpoint(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: OtlpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Encoding"] == "gzip"
        self.server.paths.add(self.path)
        self.server.tokens.add(self.headers["X-Token"])
        self.server.requests.append(ExportMetricsServiceRequest.FromString(gzip.decompress(body)))
        time.sleep(self.server.delay_s)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def receiving() -> Iterator[OtlpReceiver]:
    """Run a receiver."""
    with OtlpReceiver() as receiver:
        thread = Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()
