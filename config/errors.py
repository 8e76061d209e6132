"""The errors of the operator's file.

::

    ConfigError                every fault of one file, warnings among them
    ├── UnreadableFileError    missing, not permitted, a directory, not UTF-8
    ├── InvalidYamlError       not YAML, or YAML that this program does not take
    └── InvalidConfigError     YAML, but not a configuration
    StartError                 what a key names and the system does not give; ``located`` gives it a file and a line
    TlsFileError               a certificate, key or CA file; ``load`` gives it a file, a line and a key
    TokenFileError             a file with a token; likewise, but for what reads it later
    UnitError                  one size, duration or address; ``load`` gives it a file, a line and a key
    ThrottledReplicasError     one list of throttled replicas; likewise
    TermsError                 an expiry, a schedule or a ramp of a rule; likewise
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """Whether the file can still be used."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, and its remedy."""

    file: str
    line: int  # from 1
    key: str  # path to the key, such as quotas[2].producer_byte_rate
    message: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        warning = "warning: " if self.severity is Severity.WARNING else ""
        return f"{self.file}:{self.line}: {self.key}: {warning}{self.message}"


class ConfigError(Exception):
    """A file that cannot be used. ``str`` of it is one line per fault."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(sorted(faults, key=lambda fault: fault.line))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class UnreadableFileError(ConfigError):
    """The file cannot be opened, or its bytes are not UTF-8."""


class InvalidYamlError(ConfigError):
    """The file is not valid YAML, so its keys cannot be checked."""


class InvalidConfigError(ConfigError):
    """The file is YAML, but its keys or values are not a configuration."""


class StartError(OSError):
    """The proxy cannot start with a value of the file: an address in use, a read-only disk.

    Attributes:
        location: The key: ``("store", "directory")``.
    """

    def __init__(self, location: Sequence[str | int], message: str) -> None:
        self.location = location
        super().__init__(message)


class TlsFileError(Exception):
    """A file of certificates or a key that cannot be used. ``str`` of it begins with the path.

    Attributes:
        key: Which of the section's files it is: ``certificate``, ``key``, ``client_ca`` or ``ca``.
    """

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


class TokenFileError(Exception):
    """A file with a token that cannot be used. ``str`` of it begins with the path."""


class UnitError(ValueError):
    """Text that is not a size, a duration or an address."""


class ThrottledReplicasError(ValueError):
    """Text that is not a list of throttled replicas."""


class TermsError(ValueError):
    """Terms of a rule that are not valid.

    Attributes:
        path: The key, and those around it from the rule on: ``("schedule", "days")``.
        message: What is wrong and what would be right, without the key.
    """

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)
