"""Runs one fuzz target under libFuzzer: ``python -m tests.fuzz.libfuzzer TARGET FRAMES [ARGUMENTS]``.

The proxy's modules must be imported under instrumentation, so their imports are inside ``main``.
"""

import json
import os
import sys
import time
from importlib import import_module
from typing import Any, Final

_PROGRESS_SECONDS: Final = 5.0


def main() -> None:
    """Run libFuzzer for a number of frames.

    The last line of its output has the numbers of frames and inputs as JSON.
    """
    target, frames, arguments = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["kafka_quota_proxy"]):
        run = import_module("tests.fuzz.targets").TARGETS[target].run
    done = inputs = 0
    shown = time.monotonic()

    def one(data: bytes) -> None:
        nonlocal done, inputs, shown
        try:
            done += run(data)
        except BaseException as error:
            error.add_note(f"the input: bytes.fromhex({data.hex()!r})")  # libFuzzer may end before it writes the input
            raise
        inputs += 1
        if time.monotonic() - shown > _PROGRESS_SECONDS:
            shown = time.monotonic()
            print(f"{target}: {done:,} of {frames:,} frames, {inputs:,} inputs", file=sys.stderr)  # noqa: T201
        if done >= frames:
            print("\n" + json.dumps({"inputs": inputs, "frames": done}), file=sys.stderr, flush=True)  # noqa: T201
            os._exit(0)  # the only way to stop libFuzzer from inside

    atheris.Setup(["fuzz", *arguments], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
