"""Logs and counts unexpected exceptions, and ends only the work that raised them.

``isolated``    is for a method of a connection. After an exception, it ends this connection with ``fail``.
``alone``       is for a coroutine that dials, accepts a connection or serves a request. It ends the coroutine.
``kept_up``     is for a coroutine that must not stop. After an exception, it starts the coroutine again.
``persisting``  is for the work of a thread that must not stop. After an exception, it starts the work again.
``repeated``    is for a timer or deferred work. After an exception, it calls the function again later.
``attempt``     is for one of several steps. After an exception, the other steps still run.
``watch``       is for all other callbacks of the event loop, such as those that receive data. They have no
                decorator, because it would cost time for each request. After an exception, uvloop closes the
                transport.
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

# The cause that is counted if an unexpected exception ended a client's connection.
INTERNAL_ERROR: Final = "internal_error"
# The number of unexpected exceptions, by the subpackage and module of ``proxy`` that the event loop or thread called.
internal_errors: Final[dict[str, int]] = {}

_AGAIN_S: Final = 1.0
# A line of the program may fail for each request. The log gets at most ``_MOST_LOGGED`` tracebacks of it in this time.
_LOGGED_WITHIN_S: Final = 10.0
_MOST_LOGGED: Final = 10
_PACKAGE: Final = f"{__name__.partition('.')[0]}."

_counting: Final = Lock()
# For each line (module and number): the time of its first traceback, and the number of exceptions since then.
_logged: Final[dict[tuple[str, int], tuple[float, int]]] = {}

P = ParamSpec("P")
T = TypeVar("T")


class Fallible(Protocol):
    """An object, such as a connection, that can be ended after an error without affecting other objects."""

    def fail(self) -> None:
        """End at once, in any state. This may be called more than once."""


F = TypeVar("F", bound=Fallible)


def _place(module: str) -> str:
    """Return the short name of a module in this program's package ``proxy``, such as ``server.clients.connection``."""
    return f"{module.split('.')[2]}.{module.rpartition('.')[2]}"


def report(error: BaseException, what: str = "this is a bug of the proxy", *arguments: object) -> None:
    """Log and count an unexpected exception. May be called from any thread.

    ``what`` is the text of the log message. It describes the consequence of the exception, and may contain placeholders
    (%s) for ``arguments``.
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
    """Log and count each exception that a callback of this event loop raises and that nothing else handles."""
    loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if error is None:
        loop.default_exception_handler(context)
    else:
        report(error, "%s", context.get("message", ""))


def isolated(method: Callable[Concatenate[F, P], T]) -> Callable[Concatenate[F, P], T | None]:
    """Decorate a method. If it raises an exception, report this, call the object's ``fail``, and return None."""
    is_beginning = method.__name__ == "connection_made"

    @wraps(method)
    def guarded(self: F, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the other connections go on
            if is_beginning:  # ``fail`` may not know the transport yet
                attempt(args[0].abort)  # type: ignore[attr-defined] # a transport
            end_after(error, self)
            return None

    return guarded


def end_after(error: Exception, owner: F) -> None:
    """Report an exception, and call the ``fail`` of the object in which it was raised."""
    report(error)
    attempt(owner.fail)


def repeated(method: Callable[P, None]) -> Callable[P, None]:
    """Decorate a function so that, after an exception, it is called again every second until it succeeds."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - as above
            report(error, "it is tried again")
            asyncio.get_running_loop().call_later(_AGAIN_S, lambda: guarded(*args, **kwargs))

    return guarded


def attempt(step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call ``step``. If it raises an exception, report the exception and return."""
    try:
        step(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - as above
        report(error)


async def alone(work: Callable[[], Coroutine[Any, Any, T]], *, fail: Callable[[], object] | None = None) -> T | None:
    """Await ``work()`` and return its result. If it raises an exception, report this, call ``fail`` and return None.

    ``work`` is a function that creates the coroutine. If it were the coroutine itself, and the task was cancelled
    before it started, Python would warn that the coroutine was never awaited.
    """
    try:
        return await work()
    except Exception as error:  # noqa: BLE001 - as above
        report(error)
        if fail is not None:
            attempt(fail)
        return None


async def kept_up(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Await ``work()`` until it returns. After each exception, report it, wait a second, and begin again."""
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - as above
            report(error, "it is begun again")
        else:
            return
        await asyncio.sleep(_AGAIN_S)


def persisting(work: Callable[[], object]) -> Callable[[], None]:
    """Return a function for a thread, which calls ``work`` until it returns.

    After each exception, it reports the exception, waits a second, and calls ``work`` again.
    """

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
