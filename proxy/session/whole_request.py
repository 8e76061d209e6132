"""What becomes of a request that is read whole, and of its answer: the decisions of those who do."""

from typing import NamedTuple, Protocol


class Hold(NamedTuple):
    """Ask again then."""

    until_ms: int


class Answered(NamedTuple):
    """The request does not pass; this is its answer, a whole frame."""

    frame: bytes


class Ask(NamedTuple):
    """This goes to the broker first, a whole frame; when ``answer`` has had what the broker says, decide anew."""

    frame: bytes


class Forward(NamedTuple):
    """This passes in the request's place; empty: the request itself does."""

    frame: bytes
    is_answer_read: bool  # its answer is to be handed to ``answer``, whole; else it passes as it comes


Decision = Hold | Answered | Ask | Forward


class Exchange(Protocol):
    """Somebody who decides on requests that are whole, behind whose predecessors nothing is unanswered.

    ``api_key`` is that of the request which was passed on last.
    """

    api_key: int

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """Return what goes to the client for an answer, which is whole; empty: nothing does.

        Args:
            data: Bytes from the broker.
            position: Where the answer's size prefix is.
            frame_bytes: Its length, with the prefix.
            now_ms: When it has come.

        Raises:
            ProtocolError: It is no answer to what was asked.
        """
