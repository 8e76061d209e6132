"""Guesses which known name a misspelt name is meant to be."""

from collections.abc import Iterable
from typing import Final

# In shorter names one edit makes any other name.
_SHORTEST: Final = 3


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is ``name``, or else the first one that is one edit away from it, or None.

    An edit is one character more, one less or another one, or two neighbours that are swapped.
    """
    names = list(known)
    if name in names:
        return name
    return next((one for one in names if min(len(name), len(one)) >= _SHORTEST and _is_one_edit(name, one)), None)


def _is_one_edit(name: str, other: str) -> bool:
    if abs(len(name) - len(other)) > 1:
        return False
    at = 0
    for one, two in zip(name, other, strict=False):
        if one != two:
            break
        at += 1
    left, right = name[at:], other[at:]
    swapped = left[1::-1] + left[2:]
    return left[1:] == right[1:] or left == right[1:] or left[1:] == right or swapped == right
