"""A thread that samples something ten times a second in a ``with`` block."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Self

_EVERY_S: Final = 0.1


class Watch(ABC):
    """A subclass takes its samples in ``_look``."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on_looking)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _go_on_looking(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            self._look()

    @abstractmethod
    def _look(self) -> None:
        """Take one sample."""
