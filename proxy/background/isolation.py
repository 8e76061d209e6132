"""An unexpected exception is logged and counted, and ends only the work that raised it.

``isolated``    a method of a connection: the connection's ``fail`` is called
``alone``       a coroutine of one dial, one accepted connection, one request: it ends
``kept_up``     a coroutine that must go on: it is started again
``persisting``  a thread that must go on: it is started again
``repeated``    a timer or deferred work: it is called again later
``attempt``     one step among others: the others follow
``watch``       every other callback of the loop, above all those that receive data. A guard of their own would cost a
                call for each request; uvloop closes the transport.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from threading import Lock
from time import monotonic, sleep
from traceback import walk_tb
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

log = logging.getLogger(__name__)

# Why a client's connection was closed, as it is counted.
INTERNAL_ERROR: Final = "internal_error"
# Counts by the room and module of ``proxy`` that the loop or the thread called.
internal_errors: Final[dict[str, int]] = {}

_AGAIN_S: Final = 1.0
# A line of the program that fails for each request has at most so many tracebacks in the log in this time.
_LOGGED_WITHIN_S: Final = 10.0
_MOST_LOGGED: Final = 10
_PACKAGE: Final = f"{__name__.partition('.')[0]}."

_counting: Final = Lock()
_logged: Final[dict[tuple[str, int], tuple[float, int]]] = {}  # by line: its first traceback, and how many since

P = ParamSpec("P")
T = TypeVar("T")


class Fallible(Protocol):
    """An object that can end alone."""

    def fail(self) -> None:
        """End at once, in any state. Harmless when repeated."""


F = TypeVar("F", bound=Fallible)


def _place(module: str) -> str:
    """Return a module's room and its last name, such as ``server.connection``."""
    return f"{module.split('.')[2]}.{module.rpartition('.')[2]}"


def report(error: BaseException, what: str = "this program has a fault", *arguments: object) -> None:
    """Log and count an unexpected exception. For any thread.

    ``what`` says the consequence, and may have placeholders of ``logging`` for ``arguments``.
    """
    frames = [(frame.f_globals.get("__name__", ""), line) for frame, line in walk_tb(error.__traceback__)]
    own = [one for one in frames if one[0].startswith(_PACKAGE) and one[0] != __name__]
    where = _place(own[0][0]) if own else "elsewhere"
    line, now_s = (own or frames or [("", 0)])[-1], monotonic()
    with _counting:
        internal_errors[where] = internal_errors.get(where, 0) + 1
        since_s, count = _logged.get(line, (now_s, 0))
        if now_s - since_s >= _LOGGED_WITHIN_S:
            since_s, count = now_s, 0
        _logged[line] = since_s, count + 1
    if count < _MOST_LOGGED:
        log.error("internal error in %s: " + what, where, *arguments, exc_info=error)  # noqa: G003


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Report all exceptions of the loop's callbacks."""
    loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if error is None:
        loop.default_exception_handler(context)
    else:
        report(error, "%s", context.get("message", ""))


def isolated(method: Callable[Concatenate[F, P], T]) -> Callable[Concatenate[F, P], T | None]:
    """Make a method call ``fail`` of its object, and return None, if it raises."""
    is_beginning = method.__name__ == "connection_made"

    @wraps(method)
    def guarded(self: F, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the other connections go on
            report(error)
            if is_beginning:  # ``fail`` may not know it yet
                attempt(args[0].abort)  # type: ignore[attr-defined] # a transport
            attempt(self.fail)
            return None

    return guarded


def repeated(method: Callable[P, None]) -> Callable[P, None]:
    """Make a method that raises be called again a little later, until it succeeds."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - as above
            report(error, "it is tried again")
            asyncio.get_running_loop().call_later(_AGAIN_S, lambda: guarded(*args, **kwargs))

    return guarded


def attempt(step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call ``step``, and report what it raises."""
    try:
        step(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - as above
        report(error)


async def alone(work: Callable[[], Coroutine[Any, Any, T]], *, fail: Callable[[], object] | None = None) -> T | None:
    """Await ``work()``; if it raises, call ``fail`` and return None.

    ``work`` is called here, so that a task that is cancelled before it begins leaves no coroutine that was never
    awaited.
    """
    try:
        return await work()
    except Exception as error:  # noqa: BLE001 - as above
        report(error)
        if fail is not None:
            attempt(fail)
        return None


async def kept_up(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Await ``work()``, again a little after each time that it raises."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - as above
            report(error, "it is begun again")
        else:
            return
        await asyncio.sleep(_AGAIN_S)


def persisting(work: Callable[[], object]) -> Callable[[], None]:
    """Return a function for a thread that calls ``work``, again a little after each time that it raises."""

    def run() -> None:
        while True:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - as above
                report(error, "it is begun again")
            else:
                return
            sleep(_AGAIN_S)

    return run
