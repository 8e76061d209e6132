"""Runs blocking calls in threads."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], *, name: str = "cluster") -> T:
    """Run ``work`` in a new thread, and return its result. The process does not wait for the thread when it ends."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # so that this future is not cancelled if the task that awaits it is
    threading.Thread(target=_run, args=(work, future), name=name, daemon=True).start()
    return await asyncio.wrap_future(future)


def _run(work: Callable[[], T], future: "Future[T]") -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        future.set_exception(error)
    else:
        future.set_result(result)
