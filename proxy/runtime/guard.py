"""Runs a program that ends with the process which started it: ``python -m … PROGRAM ARGUMENT…``.

The guard's standard input is a pipe from that process. However the process ends, the kernel then closes the pipe, and
the guard ends the program. A guard imports little, because the program starts only after it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import Final

_GRACE_S: Final = 3


def guard(command: list[str]) -> int:
    """Run ``command`` until it ends. End it as soon as standard input is closed.

    Return the exit status of the command, or 128 + n if signal n ended it.
    """
    # The program has a process group of its own, so that its children end, too. It has no standard input, because the
    # guard watches that.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0) as program:  # noqa: S603 - of our own

        def stop_with_standard_input() -> None:
            while os.read(sys.stdin.fileno(), 4_096):
                pass
            program.terminate()
            try:
                program.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(program.pid, signal.SIGKILL)

        # The thread is a daemon, because os.read may block for ever after the program has ended by itself.
        threading.Thread(target=stop_with_standard_input, daemon=True).start()
        status = program.wait()
        return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
