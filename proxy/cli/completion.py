"""The ``kafka-quota-proxy completion`` command, which prints a script that lets a shell complete the command line.

The script is generated from the parsers of all commands, so it has each command and option.
"""

import argparse
import sys
from typing import Final

import shtab

_SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = ("CONFIG", "FILE")  # the metavars of arguments that name a file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``completion``."""
    parser.add_argument("shell", choices=_SHELLS, help="the shell that the script is for")


def execute(args: argparse.Namespace) -> int:
    """Print the completion script. ``args.program`` is the parser of the whole command line."""
    _prepare(args.program)
    sys.stdout.write(f"{shtab.complete(args.program, args.shell)}\n")
    return 0


def _prepare(parser: argparse.ArgumentParser) -> None:
    """Mark the arguments that name a file, and describe each command by its summary."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for summary in action._choices_actions:  # noqa: SLF001
                subparser = action.choices[summary.dest]
                subparser.description = summary.help
                _prepare(subparser)
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
