"""Shows the progress of the demo: a line for each second."""

import sys
from collections.abc import Iterable

from kafka_quota_proxy.config.units import short_size


class Display:
    """Prints the progress of the demo. For ``--json`` it is quiet: it shows none, and notes are on standard error."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self._last_s = 0

    def note(self, text: str) -> None:
        """Print a message about the demo, in addition to its progress."""
        out = sys.stderr if self._is_quiet else sys.stdout
        out.write(f"{text}\n")
        out.flush()

    def show(self, lines: Iterable[str], *, elapsed_s: float, planned_s: float) -> None:
        """Print the state of all clients on a line, unless a line was already printed in this second."""
        if int(elapsed_s) > self._last_s and not self._is_quiet:
            self._last_s = int(elapsed_s)
            self.note(f"{self._last_s:3d}/{planned_s:.0f} s  {'  |  '.join(lines)}")


def format_rate(bytes_per_second: float) -> str:
    """Return a rate as text in a binary unit: ``1.5 MiB/s``."""
    return f"{short_size(bytes_per_second, like='iB')}/s"


def format_seconds(milliseconds: float) -> str:
    """Return a time as text, such as ``1.5 s``."""
    return f"{milliseconds / 1000:.1f} s"
