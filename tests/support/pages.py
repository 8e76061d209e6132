"""Finds the Markdown pages of the repository, and the fenced blocks in them."""

import re
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("docs", "bench", "tests")
PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob("examples/*/README.md"),
        *(page for folder in FOLDERS for page in (REPOSITORY / folder).rglob("*.md")),
    ]
)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page. ``where`` has the page and the line."""

    where: str
    language: str
    text: str

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Returns the commands of a shell block, each with its output.

        In a block of ``console`` a command follows ``$``. In a block of ``sh`` the output is a ``#`` comment.
        """
        found: list[tuple[str, str]] = []
        prompt, output = ("$ ", "") if self.language == "console" else ("", "# ")
        for line in self.text.replace("\\\n", "").splitlines():
            if line.startswith(prompt) and not (output and line.startswith(output)):
                found.append((line.removeprefix(prompt), ""))
            else:
                command, so_far = found.pop()
                found.append((command, f"{so_far}{line.removeprefix(output)}\n"))
        return found


def blocks(language: str) -> list[Block]:
    """Return all fenced blocks in a language."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            where = f"{page.relative_to(REPOSITORY)}:{text.count(chr(10), 0, match.start()) + 1}"
            found.append(Block(where, match[1], match[2]))
    return [block for block in found if block.language == language]


def block(page: str, language: str, *, holding: str) -> Block:
    """Return the only block of a page in docs/ that contains the text ``holding``."""
    (found,) = (one for one in blocks(language) if one.where.startswith(f"docs/{page}:") and holding in one.text)
    return found
