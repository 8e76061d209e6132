"""The corpus of each fuzz target: inputs that reach different code, and mutations of those inputs.

The file of a target has each input after its length, which is an int16. The shortest input is first.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from struct import pack, unpack_from
from types import FrameType
from typing import Any, Final

from tests.fuzz import seeds

FOLDER: Final = Path(__file__).parent / "corpus"
MAX_INPUT_BYTES: Final = 800
# The largest size of the file of one target.
MAX_KEPT_BYTES: Final = 100_000
_FIRST_INPUTS: Final = 40
# The first bytes of other protocols that may arrive on a Kafka port, such as TLS, HTTP and the PROXY protocol.
OTHER_PROTOCOLS: Final = (
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"\x15\x03\x03\x00\x02\x02\x28",
    b"GET / HTTP/1.1\r\n\r\n",
    b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 9092\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c",
)
_REPOSITORY: Final = Path(__file__).parents[2]
_PROGRAM: Final = tuple(
    f"{_REPOSITORY / 'kafka_quota_proxy' / package}/" for package in ("config", "protocol", "proxy")
)


def kept(target: str) -> list[bytes]:
    """Return the inputs in the corpus of a target."""
    path = FOLDER / f"{target}.bin"
    data = path.read_bytes() if path.exists() else b""
    inputs, at = [], 0
    while at < len(data):
        size = unpack_from(">H", data, at)[0]
        inputs.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return inputs


def keep(target: str, inputs: list[bytes]) -> None:
    """Replace the corpus of a target. If the inputs exceed ``MAX_KEPT_BYTES``, the longest ones are dropped."""
    out = b""
    for one in sorted(set(inputs), key=lambda one: (len(one), one)):
        if len(out) + 2 + len(one) > MAX_KEPT_BYTES:
            break
        out += pack(">H", len(one)) + one
    (FOLDER / f"{target}.bin").write_bytes(out)


def minimised(run: Callable[[bytes], int], inputs: list[bytes]) -> list[bytes]:
    """Return a subset of the inputs that takes the same steps from line to line as all of them.

    Prefers short inputs.
    """
    chosen: list[bytes] = []
    taken: set[tuple[object, int, int]] = set()
    for one in sorted(set(inputs), key=lambda one: (len(one), one)):
        steps = _steps(run, one)
        if not steps <= taken:
            taken |= steps
            chosen.append(one)
    return chosen


def _steps(run: Callable[[bytes], int], data: bytes) -> set[tuple[object, int, int]]:
    """Return the steps from line to line that a run takes within each function of the program."""
    steps: set[tuple[object, int, int]] = set()
    last: dict[FrameType, int] = {}

    def follow(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - itself, or None
        code = frame.f_code
        if not code.co_filename.startswith(_PROGRAM):
            return None
        if event == "return":
            last.pop(frame, None)
        else:
            steps.add((code, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        return follow

    sys.settrace(follow)
    try:
        run(data)
    finally:
        sys.settrace(None)
    return steps


def first(target: str) -> list[bytes]:
    """Return the first inputs of a target. They are random decisions, and for ``garbage`` also some frames."""
    random = Random(target)  # noqa: S311 - the same ones each time
    inputs = [random.randbytes(random.randrange(20, MAX_INPUT_BYTES // 2)) for _ in range(_FIRST_INPUTS)]
    if target == "garbage":
        for _ in range(4 * _FIRST_INPUTS):
            frames = b""
            for _ in range(random.randrange(1, 4)):
                api_key = random.choice(seeds.API_KEYS)
                frames += seeds.request(api_key, random.randrange(seeds.versions(api_key)), 1, 0)
            inputs.append((bytes([random.randrange(256), min(len(frames) >> 1, 255)]) + frames)[:MAX_INPUT_BYTES])
        inputs += [bytes([choice, 255]) + beginning for choice in range(3) for beginning in OTHER_PROTOCOLS]
    return inputs


def mutated(inputs: list[bytes], random: Random) -> bytes:
    """Return one of the inputs with random changes, or a splice of two inputs."""
    out = bytearray(random.choice(inputs))
    for _ in range(random.randrange(1, 6)):
        at = random.randrange(len(out) + 1)
        match random.randrange(5):
            case 0:
                out[at : at + 1] = random.randbytes(1)
            case 1:
                del out[at : at + random.randrange(1, 8)]
            case 2:
                out[at:at] = random.randbytes(random.randrange(1, 8))
            case 3:
                other = random.choice(inputs)
                out[at:] = other[random.randrange(len(other) + 1) :]
            case _:
                out[at:at] = out[at : at + random.randrange(1, 40)]
    return bytes(out[:MAX_INPUT_BYTES])
