"""Says which version of the program this is, and whether the modules that decide on requests are compiled."""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

_SESSION: Final = Path(__file__).parent.parent / "session"


def installed_version() -> str | None:
    """Return the version of the installed package, or None if the program runs from sources that are not installed."""
    try:
        return version("kafka-quota-proxy")
    except PackageNotFoundError:
        return None


def is_compiled() -> bool:
    """Return whether ``proxy.session`` is compiled. Python prefers an extension module to the source beside it."""
    return any((_SESSION / f"session{suffix}").exists() for suffix in EXTENSION_SUFFIXES)


def implementation() -> str:
    """Return the name of this kind of build, as the label ``implementation`` of the metrics has it."""
    return "compiled" if is_compiled() else "python"


def install_line(extra: str = "") -> str:
    """Return how to install this package, with an extra if one is named. There is no release that pip could find."""
    return f"pip install '.{f'[{extra}]' if extra else ''}' in a checkout of kafka-quota-proxy"


def description() -> str:
    """Return the version and the kind of build, for a person."""
    number = installed_version() or "(not installed: run from its sources)"
    return f"{number}, {'compiled' if is_compiled() else 'pure Python'}"
