"""The errors of the operator's file. ``load`` gives those of single values a file, a line and a key."""

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
    """The proxy cannot start with the value of a key at ``location``: an address in use, a read-only disk."""

    def __init__(self, location: Sequence[str | int], message: str) -> None:
        self.location = location
        super().__init__(message)


class TlsFileError(Exception):
    """A file of certificates or a key that cannot be used; ``key`` is its key in the section."""

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
    """Terms of a rule that are not valid; ``path`` leads from the rule to the key: ``("schedule", "days")``."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)
