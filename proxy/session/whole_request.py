"""Decisions on requests that are read whole."""

from typing import NamedTuple, Protocol


class Hold(NamedTuple):
    """The request waits until then."""

    until_ms: int


class Answered(NamedTuple):
    """The request does not pass; this whole frame is its response."""

    frame: bytes


class Ask(NamedTuple):
    """This whole frame goes to the broker first. The request is decided on again after its response."""

    frame: bytes


class Forward(NamedTuple):
    """This passes in place of the request; empty: the request itself does."""

    frame: bytes
    is_answer_read: bool  # ``Exchange.answer`` gets the whole response; otherwise it passes as it comes


Decision = Hold | Answered | Ask | Forward


class Exchange(Protocol):
    """Decides on whole requests, one at a time.

    Attributes:
        api_key: Of the request that was passed on last.
    """

    api_key: int

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """Return the response that the client gets for a whole response of the broker; empty: none.

        Args:
            data: Bytes from the broker.
            position: Where the response's size prefix is.
            frame_bytes: Its length, with the prefix.
            now_ms: The time.

        Raises:
            ProtocolError: It is no response to the request.
        """
