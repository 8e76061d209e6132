"""A thread for work that would hold up the loop, one piece at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class WorkerThread:
    """Runs functions in their order. A call that is cancelled still runs to its end."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args, **kwargs))

    async def run_large(self, is_small: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the thread, or at once if its work is small."""
        return function(*args, **kwargs) if is_small else await self.run(function, *args, **kwargs)

    def shutdown(self) -> None:
        """End the thread."""
        self._executor.shutdown()
