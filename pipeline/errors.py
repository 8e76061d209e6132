"""Errors that end a command with a sentence instead of a traceback.

::

    PipelineError     the root: exit status 1
    ├── UsageError    wrong usage: exit status 2
    └── InputError    a faulty input file (capacities, owners, sizes …), as FILE:LINE: fault
"""

from collections.abc import Iterable


class PipelineError(Exception):
    """A command cannot go on. ``str`` of it says why, and what to do."""


class UsageError(PipelineError):
    """An argument that is wrong."""


class InputError(PipelineError):
    """A file that is wrong: every fault of it, one a line."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))
