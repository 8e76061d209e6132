"""Reads the file that contains the token with which clients of the admin port may change quotas."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.document import Document, Finding, error, warning
from kafka_quota_proxy.config.errors import TokenFileError
from kafka_quota_proxy.config.sections import Part

# 16 random letters and digits are 95 bits, too many to guess over the network.
LEAST_TOKEN_LENGTH: Final = 16
_MOST_TOKEN_LENGTH: Final = 1_024
_AT: Final = ("admin", "quotas_token_file")
_MAKE_ONE: Final = "make one with: openssl rand -hex 32"


def read_token(path: str | Path) -> str:
    """Return the token: the first line of the file, without leading and trailing spaces.

    Raises TokenFileError if the file cannot be read or the token is too short, too long or not printable ASCII.
    """
    try:
        with Path(path).open("rb") as file:
            line = file.readline(_MOST_TOKEN_LENGTH + 2).strip()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise TokenFileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not LEAST_TOKEN_LENGTH <= len(line) <= _MOST_TOKEN_LENGTH:
        reason = f"{path} has a first line of {len(line)} bytes; a token has {LEAST_TOKEN_LENGTH} to"
        raise TokenFileError(f"{reason} {_MOST_TOKEN_LENGTH}: {_MAKE_ONE}")
    if not all(0x21 <= byte < 0x7F for byte in line):
        raise TokenFileError(f"{path} has a first line with more than letters, digits and signs in it: {_MAKE_ONE}")
    return line.decode("ascii")


def check_token_file(top: Part, _: Document) -> Iterator[Finding]:
    """Report if the file that ``admin.quotas_token_file`` names has no valid token, or every local user can read it."""
    path = top.find(*_AT)
    if path is None:
        return
    try:
        read_token(path)
        if Path(path).stat().st_mode & stat.S_IRWXO:
            yield warning(_AT, f"{path} can be read by every user of this machine: chmod 640 {path}")
    except TokenFileError as fault:
        yield error(_AT, str(fault))
    except OSError as fault:
        yield error(_AT, f"{path} cannot be read: {fault.strerror}")
