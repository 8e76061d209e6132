"""What ends a command with a sentence and not with a traceback.

::

    PipelineError     the root: exit status 1
    ├── UsageError    what was asked for cannot be: exit status 2
    └── InputError    a file beside the log (capacities, owners, sizes …) that is wrong, as FILE:LINE: what is wrong
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
