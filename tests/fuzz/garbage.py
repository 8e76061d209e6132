"""Fuzzes a session with raw bytes, first from the client and then from the broker."""

from tests.fuzz.dialogue import Stage
from tests.fuzz.source import Source
from tests.support.wire import Wire


def garbage(source: Source) -> int:
    """Give a session raw bytes from the client and then from the broker, and return the number of frames."""
    choice = source.byte()
    data = source.take(source.byte() << 1 | 1)
    whole, parts = Stage(Wire()), Stage(Wire())
    whole.from_client([data] if data else [])
    parts.from_client([data[at : at + 1 + choice % 16] for at in range(0, len(data), 1 + choice % 16)])
    assert (whole.error and whole.error.reason) == (parts.error and parts.error.reason)
    assert whole.asked == parts.asked
    answer = source.rest()
    if answer:
        whole.from_broker([answer])
    whole.finish()
    for stage in (whole, parts):
        stage.close()
    return whole.passed_frames
