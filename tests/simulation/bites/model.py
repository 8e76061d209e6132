"""A break: a few lines of the product that are made wrong."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

REPOSITORY: Final = Path(__file__).parents[3]

# A fixed bug of this project's history that comes back, a break drawn by hand from a room, or one drawn by a program.
Origin = Literal["fixed bug", "room", "mutation"]


class Break(NamedTuple):
    """One change of one file.

    Attributes:
        name: What goes wrong, as the subject of a bug's report.
        file: Its path in the repository.
        old: The text to replace. It is in the file exactly once.
        new: The text in its place.
        theme: The theme whose worlds it needs, if those of the others hardly ever reach it; else "".
        why: If the simulation does not find it: why it does not.
        is_harmless: Whether it breaks no promise, so that nothing could find it. It does not count then.
    """

    name: str
    file: str
    old: str
    new: str
    origin: Origin = "room"
    theme: str = ""
    why: str = ""
    is_harmless: bool = False

    @property
    def room(self) -> str:
        """The folder of the file, such as "proxy/session"."""
        parts = Path(self.file).parts
        # The handlers and the replicas are rooms of their own within the session.
        return "/".join(parts[: 3 if len(parts) > 3 and parts[1] == "session" else min(2, len(parts) - 1)])


class BreakError(Exception):
    """A break does not fit the file, which has changed since the break was written."""


def applied(one: Break, root: Path = REPOSITORY) -> str:
    """Return the file's text with the break.

    Raises:
        BreakError: The old text is not in the file exactly once.
    """
    text = (root / one.file).read_text(encoding="utf-8")
    times = text.count(one.old)
    if times != 1:
        raise BreakError(f"{one.name}: its old text is {times} times in {one.file}; write the break anew")
    return text.replace(one.old, one.new)
