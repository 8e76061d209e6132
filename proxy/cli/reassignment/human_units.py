"""Formats sizes, rates and times for people.

Units are powers of 1,000, as in ``kafka-reassign-partitions.sh --throttle`` and in ``10MB`` in a configuration file.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

_UNITS: Final = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
_LONGEST_MS: Final = 366 * 86_400_000


def size_text(size_bytes: float) -> str:
    """Return a size as text with a decimal unit, such as ``1.5 MB``."""
    for unit, factor in _UNITS:
        if size_bytes >= factor * 0.9995:  # 999.96 kB are 1.00 MB
            return f"{size_bytes / factor:.{_digits(size_bytes / factor)}f} {unit}"
    return f"{size_bytes:.0f} B"


def rate_text(rate: float) -> str:
    """Return a rate as text with a decimal unit, such as ``1.5 MB/s``."""
    return f"{size_text(rate)}/s"


def _digits(number: float) -> int:
    return 1 if number < 99.95 else 0


def duration_text(duration_ms: float) -> str:
    """Return a duration as text, in its two largest units, such as ``3 h 20 min``."""
    if duration_ms > _LONGEST_MS:
        return "over a year"
    seconds = round(duration_ms / 1_000)
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {seconds % 60} s"
    return f"{seconds} s"


def clock_text(now: datetime, duration_ms: float) -> str:
    """Return the time of day that is ``duration_ms`` after ``now``, with the date if it is on another day."""
    if duration_ms > _LONGEST_MS:
        return "no date"
    then = now + timedelta(milliseconds=duration_ms)
    return f"{then:%H:%M:%S}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M}"
