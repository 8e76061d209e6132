"""Runs blocking calls in threads."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
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


class WorkerThread:
    """A thread in which coroutines run blocking functions, one after the other.

    A function that has begun runs to its end, even if the coroutine that awaits its result is cancelled.
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the thread, and return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args, **kwargs))

    def shutdown(self) -> None:
        """Wait until all calls have run, and end the thread."""
        self._executor.shutdown()
