"""Runs blocking calls in threads."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(work: Callable[[], _T], *, name: str = "cluster") -> _T:
    """Run ``work`` in a thread of its own. It does not keep the process from ending, unlike ``to_thread``."""
    future: Future[_T] = Future()
    future.set_running_or_notify_cancel()  # so that a cancelled waiter does not cancel it
    threading.Thread(target=_run, args=(work, future), name=name, daemon=True).start()
    return await asyncio.wrap_future(future)


def _run(work: Callable[[], _T], future: "Future[_T]") -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
        future.set_exception(error)
    else:
        future.set_result(result)
