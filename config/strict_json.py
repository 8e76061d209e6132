"""Reads JSON strictly: duplicate keys, NaN and infinities are errors."""

import json
from typing import NoReturn

from kafka_quota_proxy.config.units import shown


class StrictJsonError(ValueError):
    """Raised if the bytes are not valid JSON, or contain duplicate keys, NaN or infinities. The message says where."""


def parse_json(data: bytes) -> object:
    """Parse JSON text in UTF-8 and return its value. Raises StrictJsonError if ``data`` is not valid."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except StrictJsonError:
        raise
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise StrictJsonError(f"line {error.lineno} is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):  # ValueError: a number of more than 4,300 digits
        raise StrictJsonError("is not JSON that this program accepts") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise StrictJsonError(f"{shown(key)} is given twice in one object")
        found[key] = value
    return found


def _no_constant(text: str) -> NoReturn:
    raise StrictJsonError(f"{text} is not a number")
