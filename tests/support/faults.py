"""Finds the functions of the proxy that the event loop, asyncio and threads call, and makes one of them raise.

A function is an *entry* if its caller is no function of the proxy, or is ``runtime.isolation``. Only the exception
handlers under test can catch an exception of an entry.
"""

import ast
import asyncio
import inspect
import linecache
import pkgutil
import re
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Self

from kafka_quota_proxy import proxy
from kafka_quota_proxy.proxy.cli import logging_setup
from kafka_quota_proxy.proxy.runtime import in_thread, isolation

_ROOT: Final = str(Path(proxy.__file__).parent)
# The functions of these modules call others on behalf of the caller that awaits the result.
_HANDED_ON: Final = (isolation.__file__, in_thread.__file__)
_TESTS: Final = str(Path(__file__).parents[1])
# Here the event loop and threads begin. Frames before these on the stack do not matter.
_BEGINNINGS: Final = (asyncio.runners.__file__, threading.__file__)
# These are separate programs, which start a proxy or send requests to one.
_OTHERS: Final = ("kafka_quota_proxy.proxy.cli", "kafka_quota_proxy.proxy.__main__")
_CALLBACKS: Final = frozenset(
    name
    for kind in (asyncio.Protocol, asyncio.BufferedProtocol)
    for name, _ in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("__")
)
# The functions that take a callback, a coroutine or the function of a thread, and the position of that argument. None
# means that the argument is the keyword ``target``. Functions are missing if their caller awaits the result.
_TAKERS: Final = {
    "call_soon": 0, "call_soon_threadsafe": 0, "call_later": 1, "call_at": 1, "add_done_callback": 0,
    "add_reader": 1, "add_writer": 1, "add_signal_handler": 1,
    "create_task": 0, "ensure_future": 0, "run_coroutine_threadsafe": 0,
    "alone": 0, "kept_up": 0, "attempt": 0, "persisting": 0,
    "Thread": None,
}  # fmt: skip
# The names of methods that belong to classes of Python.
_FOREIGN: Final = frozenset({*dir(asyncio.Task), *dir(asyncio.Event), *dir(set)})


class UnexpectedError(Exception):
    """An exception that no handler of the proxy expects."""


class Entry(NamedTuple):
    """A function of the proxy that can be made to raise.

    ``is_resumed`` says that it raises after its first ``await`` instead of at its start.
    """

    file: str
    name: str
    line: int
    is_resumed: bool

    @property
    def is_of_client(self) -> bool:
        """Whether the function is in a module that uses a client library of Kafka.

        The proxy takes any exception in such a module as a sign that the cluster does not answer for now.
        """
        return bool(
            re.search(r"^(from|import) (aio)?kafka\b", Path(self.file).read_text(encoding="utf-8"), re.MULTILINE)
        )

    def __str__(self) -> str:
        where = f"{Path(self.file).relative_to(_ROOT)}:{self.line} {self.name}"
        return f"{where} (resumed)" if self.is_resumed else where


class Faults:
    """Traces this thread, and all threads that start while it is entered as a context manager.

    Attributes:
        spares: Returns whether a frame is ignored.
        seen: The entries that were called so far.
        armed: The entry that will raise once. It is None if there is no such entry, or if the entry has raised.
    """

    def __init__(self) -> None:
        self.spares: Callable[[FrameType], bool] = lambda _: False
        self.seen: set[Entry] = set()
        self.armed: Entry | None = None

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        threading.settrace(self._see)
        threading.setprofile(self._go_on)
        sys.settrace(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        threading.settrace(self._before)
        threading.setprofile(None)
        sys.settrace(self._before)

    def arm(self, entry: Entry | None) -> None:
        """Make an entry raise at its next call. If ``entry`` is None, only record calls."""
        self.armed = entry
        self.seen.clear()
        sys.settrace(self._see)  # an exception in a trace function removes it

    def _go_on(self, _: FrameType, event: str, __: object) -> None:
        """Continue to trace a thread that survives a fault."""
        if event == "call" and sys.gettrace() is None:
            sys.settrace(self._see)

    def _see(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if event != "call" or not _may_be_entry(code):
            return None
        if not (code.co_name in _CALLBACKS or _is_entry(frame)) or self.spares(frame):
            return None
        return partial(self._raise, Entry(code.co_filename, code.co_qualname, code.co_firstlineno, _is_resumed(frame)))

    def _raise(self, entry: Entry, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        """Raise at the first line of the function that is not a ``try``."""
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event != "line" or line.startswith("try:"):
            return partial(self._raise, entry)
        frame.f_trace = None
        self.seen.add(entry)
        if entry == self.armed:
            self.armed = None
            raise UnexpectedError
        return None


@cache
def _may_be_entry(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith(_ROOT) and file not in _HANDED_ON and not code.co_name.startswith("<")


def _is_resumed(frame: FrameType) -> bool:
    code = frame.f_code
    return bool(code.co_flags & (inspect.CO_COROUTINE | inspect.CO_GENERATOR)) and not _is_first(frame)


def _is_first(frame: FrameType) -> bool:
    # Before a coroutine has begun, its line is that of "def" or of its first decorator.
    return frame.f_lineno == frame.f_code.co_firstlineno


def _is_entry(frame: FrameType) -> bool:
    caller = frame.f_back
    while caller is not None:
        file = caller.f_code.co_filename
        if file == isolation.__file__ or file in _BEGINNINGS:
            return True
        if file.startswith((_ROOT, _TESTS)):
            return False  # this includes in_thread, which raises the exception again in the caller that awaits
        caller = caller.f_back
    return True


# -- the entries that the source code names --


def expected() -> set[tuple[str, str]]:
    """Return the file and the name of each callback, task and thread function in the source code of the proxy.

    The file is "" if the source does not say which object a method belongs to. The name of a method of an asyncio
    protocol begins with its class.
    """
    found: set[tuple[str, str]] = set()
    names = set()
    trees: dict[str, ast.Module] = {}
    for module in _modules():
        file = str(module.__file__)
        trees[file] = ast.parse(Path(file).read_text(encoding="utf-8"))
        names |= {
            node.name for node in ast.walk(trees[file]) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for kind in vars(module).values():
            # A protocol need not have asyncio's base class, which a compiled class cannot have.
            is_own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if is_own and "connection_lost" in vars(kind):
                found |= {(file, f"{kind.__name__}.{name}") for name in _CALLBACKS & vars(kind).keys()}
    for file, tree in trees.items():
        takers = _takers(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                taken = _taken(node, takers)
                found |= {(file if is_own else "", name) for is_own, name in taken if name in names - _FOREIGN}
    return found


def _modules() -> Iterator[Any]:
    for info in pkgutil.walk_packages(proxy.__path__, "kafka_quota_proxy.proxy."):
        if (
            not (info.name.startswith(_OTHERS) and info.name != logging_setup.__name__)
            and info.name != isolation.__name__
        ):
            yield import_module(info.name)


def _takers(tree: ast.Module) -> dict[str, int | None]:
    """Return ``_TAKERS``, and the functions of a file that pass an argument on to such a function, directly or not."""
    takers = dict(_TAKERS)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    count = 0
    while count < len(takers):
        count = len(takers)
        for function in functions:
            place = _handed_on(function, takers)
            if place is not None:
                takers.setdefault(function.name, place)
    return takers


def _handed_on(function: ast.FunctionDef | ast.AsyncFunctionDef, takers: dict[str, int | None]) -> int | None:
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    given = {name for call in calls for is_own, name in _taken(call, takers) if not is_own}
    arguments = [one.arg for one in function.args.args if one.arg != "self"]
    return next((place for place, name in enumerate(arguments) if name in given), None)


def _taken(call: ast.Call, takers: dict[str, int | None]) -> Iterator[tuple[bool, str]]:
    name = _name(call.func)
    if name not in takers:
        return
    place = takers[name]
    given = (
        [one.value for one in call.keywords if one.arg == "target"] if place is None else call.args[place : place + 1]
    )
    for one in given:
        yield from _functions(one, takers)


def _functions(node: ast.expr, takers: dict[str, int | None]) -> Iterator[tuple[bool, str]]:
    """Yield for each function that an expression finally calls whether it is in the same file, and its name."""
    if isinstance(node, ast.Lambda):
        yield from _functions(node.body, takers)
    elif isinstance(node, ast.Call):
        inner = _name(node.func)
        yield from _functions(
            node.args[0] if node.args and (inner == "partial" or inner in takers) else node.func, takers
        )
    elif isinstance(node, ast.Attribute):
        yield isinstance(node.value, ast.Name) and node.value.id == "self", node.attr
    elif isinstance(node, ast.Name):
        yield False, node.id


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
