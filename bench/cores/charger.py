"""Charges in a tight loop: ``python -m bench.cores.charger LIBRARY FILE WORKER COUNT [STEP]``.

It prints "ready", waits for a line, charges 1 each time, and prints the ns that it took. With STEP it stops for ever at
that step of its first charge, under the lock.
"""

import sys
from pathlib import Path

from bench.cores.extension import loaded


def main(library: str, file: str, worker: str, count: str, step: str = "0") -> None:
    buckets = loaded(Path(library))(file)
    buckets.join(int(worker))
    print("ready", flush=True)
    sys.stdin.readline()
    buckets.stop_at(int(step))
    print(buckets.charge_many(0, 1, int(count)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
