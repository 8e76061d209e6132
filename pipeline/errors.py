"""Errors that end a command with a message instead of a traceback.

::

    PipelineError     the base class, for exit status 1
    ├── UsageError    a wrong argument, for exit status 2
    └── InputError    a faulty input file (capacities, owners, sizes …), reported as FILE:LINE: fault; exit status 2
"""

from collections.abc import Iterable


class PipelineError(Exception):
    """Raised when a command cannot continue. The message gives the reason and, where possible, a remedy."""


class UsageError(PipelineError):
    """Raised when an argument on the command line is wrong."""


class InputError(PipelineError):
    """An input file is faulty. The message has one line for each fault."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))
