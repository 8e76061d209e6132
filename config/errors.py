"""The exceptions and faults that the reading of a configuration file may result in.

Exceptions about a single value, such as ``UnitError``, do not say where the value is. ``config.load`` turns them into
faults with a file, a line and a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

# A path may be so long. Values that are longer are shown in part.
_LONGEST_WORD: Final = 300
_LONGEST_TEXT: Final = 2_000
_LONG_WORD: Final = re.compile(rf"(\S{{{_LONGEST_WORD}}})\S+")


class Severity(Enum):
    """Whether a fault is a warning, or an error that makes the configuration file unusable."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of the configuration file: an error, or a warning. The message also says how to correct it.

    A very long key or message is shortened, because it shows a value of the file.
    """

    file: str
    line: int  # from 1
    key: str  # path to the key, such as quotas[2].producer_byte_rate
    message: str
    severity: Severity = Severity.ERROR

    def __post_init__(self) -> None:
        """Shorten the key and the message."""
        for name in ("key", "message"):
            object.__setattr__(self, name, _shortened(getattr(self, name)))

    def __str__(self) -> str:
        warning = "warning: " if self.severity is Severity.WARNING else ""
        return f"{self.file}:{self.line}: {self.key}: {warning}{self.message}"


def _shortened(text: str) -> str:
    """Shorten each long word of a text. If the text is still long, leave out its middle."""
    if len(text) <= _LONGEST_WORD:
        return text
    text = _LONG_WORD.sub(r"\1…", text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT // 2]} … {text[-_LONGEST_TEXT // 2 :]}"


class ConfigError(Exception):
    """The configuration file cannot be used. ``str`` gives one line for each fault."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(sorted(faults, key=lambda fault: fault.line))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class StartError(OSError):
    """The proxy cannot start as configured. ``location`` is the path to the configuration key to change."""

    def __init__(self, location: tuple[str | int, ...], message: str) -> None:
        self.location = location
        super().__init__(message)


class TlsFileError(Exception):
    """A certificate or key file cannot be used. ``key`` is the configuration key that names the file."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


class TokenFileError(Exception):
    """The file with the token for the admin port cannot be used. ``str`` begins with the path of the file."""


class UnitError(ValueError):
    """A value is not a valid size, rate, number, duration, address, range of ports or list of throttled replicas."""


class TermsError(ValueError):
    """The terms of a quota rule are not valid: its enforcement, shaping, expiry, schedule or ramp.

    ``path`` leads from what was read to the key at fault: ``("schedule", "days")`` from a rule, ``("days",)`` from its
    schedule.
    """

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)
