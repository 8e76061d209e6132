"""Run a program that ends when this process's standard input does: ``python -m … PROGRAM ARGUMENT…``.

The demo holds the other end of that pipe. However the demo ends, also by SIGKILL, the kernel closes its end, and the
program is stopped. A parent-death signal would do on Linux only. Standard library alone: it starts in a moment.
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


def main(command: list[str]) -> int:
    """Run ``command`` until it ends or standard input does; return its exit status, 128 + n for signal n."""
    # Its own process group, so that what it started goes with it; no standard input, which is ours to watch.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0) as program:

        def stop_when_the_demo_is_gone() -> None:
            while os.read(sys.stdin.fileno(), 4_096):
                pass
            _stop(program)

        # A daemon: os.read may block for ever after the program has ended by itself.
        threading.Thread(target=stop_when_the_demo_is_gone, daemon=True).start()
        status = program.wait()
        return status if status >= 0 else 128 - status


def _stop(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    try:
        program.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
