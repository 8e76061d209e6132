"""Types command lines into real interactive shells, and reads which commands they run."""

import os
import pty
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PROGRAM: Final = "kafka-quota-proxy"
# In place of the program there is a function that writes its arguments.
_FUNCTION: Final = f'{PROGRAM}() {{ echo "$*" >> typed; }}'
# For each shell: the command, the file that it reads at its start, and the content of this file.
_SHELLS: Final = {
    "bash": (["bash", "--rcfile", ".bashrc", "-i"], ".bashrc", f"source ./script; {_FUNCTION}"),
    "zsh": (
        ["zsh", "-i"],
        ".zshrc",
        f'fpath=("$PWD/functions" $fpath); autoload -Uz compinit; compinit -u -D; {_FUNCTION}',
    ),
    "fish": (
        ["fish", "-i"],
        ".config/fish/config.fish",
        f"source ./script; function {PROGRAM}; echo $argv >> typed; end",
    ),
}
_DEADLINE_S: Final = 20.0


class Shell:
    """An interactive shell on a terminal of its own, which has read the completion ``script`` of its kind.

    Args:
        name: bash, zsh or fish.
        script: What ``completion`` has printed.
        directory: The working and home directory.
    """

    def __init__(self, name: str, script: str, directory: Path) -> None:
        command, start_file, start = _SHELLS[name]
        (directory / start_file).parent.mkdir(parents=True, exist_ok=True)
        (directory / start_file).write_text(start)
        (directory / "functions").mkdir()
        (directory / "functions" / f"_{PROGRAM}").write_text(script)
        (directory / "script").write_text(script)
        self._typed = directory / "typed"
        self._typed.touch()
        self._terminal, side = pty.openpty()
        environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        # With --ctty the terminal controls the shell. Without it fish does not start.
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *command], cwd=directory, env=environment, stdin=side, stdout=side, stderr=side
        )
        os.close(side)
        self._shown = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def run(self, keys: str) -> str:
        """Type the program's name, then ``keys``, then Enter. Return the arguments with which the program was run."""
        before = self._typed.read_text()
        os.write(self._terminal, f"{PROGRAM} {keys}\r".encode())
        deadline = time.monotonic() + _DEADLINE_S
        while not (typed := self._typed.read_text().removeprefix(before)).endswith("\n"):
            assert time.monotonic() < deadline, f"nothing was run; the terminal shows {self._shown.decode()}"
            if select.select([self._terminal], [], [], 0.01)[0]:
                with suppress(OSError):  # the shell has ended
                    self._shown += os.read(self._terminal, 65_536)
        return typed.strip()
