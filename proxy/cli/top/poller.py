"""Asks a proxy for its clients again and again, in a thread, so that the terminal reacts to keys meanwhile."""

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from kafka_quota_proxy.proxy.cli.admin_client import AdminPortError

INTERVAL_S: Final = 1.0
Page = Mapping[str, Any]
Query = Mapping[str, str]


class Answer(NamedTuple):
    """The last page that the proxy has sent.

    If the proxy does not answer any more, ``trouble`` says why, and ``lost_s`` is the time of the first failure.
    """

    page: Page | None = None
    query: Query | None = None
    trouble: str = ""
    lost_s: float = 0.0


class Poller:
    """Asks once a second, and at once if the query changes. Runs within a ``with`` block.

    Args:
        ask: Sends a query to the proxy and returns the page. It raises ``AdminPortError``.
    """

    def __init__(self, ask: Callable[[Query], Page], *, interval_s: float = INTERVAL_S) -> None:
        self._ask = ask
        self._interval_s = interval_s
        self._query: Query = {}
        self._changed = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="poller", daemon=True)
        self.answer = Answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The thread may wait for the proxy. It ends with the process.
        self._is_closed = True
        self._changed.set()

    def want(self, query: Query) -> None:
        """Ask with this query from now on."""
        if query != self._query:
            self._query = query
            self._changed.set()
        if not self._thread.is_alive() and not self._is_closed:
            self._thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            self._changed.clear()
            query = self._query
            try:
                self.answer = Answer(self._ask(query), query)
            except AdminPortError as error:
                before = self.answer
                lost_s = before.lost_s if before.trouble else time.monotonic()
                self.answer = before._replace(trouble=str(error), lost_s=lost_s)
            self._changed.wait(self._interval_s)
