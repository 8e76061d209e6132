"""Runs the simulation against a broken copy of the proxy."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.simulation.bites.model import REPOSITORY, Break, BreakError, applied

STEPS: Final = 1_000_000

# What the simulation imports. The links in kafka_quota_proxy are copied as links.
_COPIED: Final = ("kafka_quota_proxy", "proxy", "protocol", "config", "tests/simulation", "tests/support")
_SEED_SECONDS: Final = 30
_MOST_SECONDS: Final = 3_600
_MOST_TEXT: Final = 2_000


class Bite(NamedTuple):
    """What the simulation found of a break.

    Attributes:
        check: The broken promise that was found first, or "" if nothing was found.
        text: What the check said.
        steps: Steps until then.
    """

    name: str
    check: str
    text: str
    seeds: int
    steps: int
    seconds: float

    def to_json(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read a line that ``to_json`` has written."""
        return cls(**json.loads(line))


def copy_of(root: Path, folder: Path) -> None:
    """Copy what the simulation needs from the repository ``root`` to ``folder``."""
    for name in _COPIED:
        if (root / name).exists():
            # With the compiled modules, which Python takes only for files of the same time.
            shutil.copytree(root / name, folder / name, symlinks=True)


def bite(
    one: Break | None, *, steps: int = STEPS, first_seed: int = 1, theme: str = "", root: Path = REPOSITORY
) -> Bite:
    """Run the simulation with a break, or with none, until something is found or ``steps`` are done.

    Without a break, ``theme`` is the theme of the seeds; "" is all.

    Raises:
        BreakError: The break does not fit the file, or the simulation does not start with it.
    """
    with tempfile.TemporaryDirectory(prefix="bite-") as name:
        folder = Path(name)
        copy_of(root, folder)
        if one is not None:
            (folder / one.file).write_text(applied(one, root), encoding="utf-8")
        command = [sys.executable, "-m", "tests.simulation", "--from", str(first_seed), "--steps", str(steps)]
        command += ["--jobs", "1", "--findings", "1", "--shrink-seconds", "0", "--json"]
        command += ["--seed-seconds", str(_SEED_SECONDS)]
        if one is not None:
            theme = one.theme
        if theme:
            command += ["--theme", theme]
        environment = {**os.environ, "PYTHONPATH": name}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_MOST_SECONDS, check=False
        )
    title = "nothing" if one is None else one.name
    last = done.stdout.splitlines()[-1:]
    if not last or not last[0].startswith('{"seeds"'):
        raise BreakError(f"{title}: the simulation did not run\n{done.stdout[-_MOST_TEXT:]}{done.stderr[-_MOST_TEXT:]}")
    said: dict[str, Any] = json.loads(last[0])
    found = said["findings"][0] if said["findings"] else {"check": "", "text": ""}
    return Bite(title, found["check"], found["text"][:_MOST_TEXT], said["seeds"], said["steps"], said["seconds"])
