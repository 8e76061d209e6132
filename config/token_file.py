"""A file with a token, which permits changes of quotas at the admin port."""

import stat
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.document import Document, key_path
from kafka_quota_proxy.config.errors import Fault, Severity, TokenFileError
from kafka_quota_proxy.config.unvalidated import mapping_at

# 16 random letters and digits are 95 bits, too many to guess over the network.
LEAST_TOKEN_LENGTH: Final = 16
_MOST_TOKEN_LENGTH: Final = 1_024
_AT: Final = ("admin", "quotas_token_file")
_MAKE_ONE: Final = "make one with: openssl rand -hex 32"


def read_token(path: str | Path) -> str:
    """Return the first line of a file, without spaces around it.

    Raises:
        TokenFileError: It cannot be read, or that is no token that can be sent and is hard to guess.
    """
    try:
        with Path(path).open("rb") as file:
            line = file.readline(_MOST_TOKEN_LENGTH + 2).strip()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise TokenFileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not LEAST_TOKEN_LENGTH <= len(line) <= _MOST_TOKEN_LENGTH:
        reason = (
            f"{path} has a first line of {len(line)} bytes; a token has {LEAST_TOKEN_LENGTH} to {_MOST_TOKEN_LENGTH}"
        )
        raise TokenFileError(f"{reason}: {_MAKE_ONE}")
    if not all(0x21 <= byte < 0x7F for byte in line):
        raise TokenFileError(f"{path} has a first line with more than letters, digits and signs in it: {_MAKE_ONE}")
    return line.decode("ascii")


def check_token_file(document: Document, directory: Path) -> list[Fault]:
    """Return the faults of the file that ``admin`` names; a relative name starts from ``directory``."""
    name = (mapping_at(document, _AT[0]) or {}).get(_AT[1])
    if not isinstance(name, str) or not name:
        return []
    path = directory / name

    def fault(message: str, severity: Severity) -> list[Fault]:
        return [
            Fault(file=document.file, line=document.line(_AT), key=key_path(_AT), message=message, severity=severity)
        ]

    try:
        read_token(path)
        mode = path.stat().st_mode
    except TokenFileError as error:
        return fault(str(error), Severity.ERROR)
    except OSError as error:
        return fault(f"{path} cannot be read: {error.strerror or error}", Severity.ERROR)
    if mode & stat.S_IRWXO:
        return fault(f"{path} can be read by everybody on this machine: chmod 640 {path}", Severity.WARNING)
    return []
