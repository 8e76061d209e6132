"""A thread that samples something again and again in a ``with`` block."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Watch(ABC):
    """A subclass takes its samples in ``_look``."""

    def __init__(self, *, every_s: float = 0.1) -> None:
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on_looking, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _go_on_looking(self) -> None:
        while not self._is_over.wait(self._every_s):
            self._look()

    @abstractmethod
    def _look(self) -> None:
        """Take one sample."""
