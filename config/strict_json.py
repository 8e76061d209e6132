"""Reads JSON strictly: duplicate keys, NaN, infinities, deep nesting and text that UTF-8 cannot hold are errors."""

import json
import re
from typing import Final, NoReturn

from kafka_quota_proxy.config.units import shown

# No format of this program has more levels. Code that walks a deep value would overflow the stack.
_MOST_LEVELS: Final = 16
_ESCAPED: Final = re.compile(r"\\u[dD][89a-fA-F]")


class StrictJsonError(ValueError):
    """Raised if the bytes are not JSON that ``parse_json`` accepts. The message says where."""


def parse_json(data: bytes) -> object:
    """Parse JSON text in UTF-8 and return its value.

    Raises:
        StrictJsonError: If ``data`` is not valid, has an object with duplicate keys, a number that is not finite, more
            than ``_MOST_LEVELS`` levels, or text with half of a pair of surrogates, which cannot be encoded.
    """
    try:
        text = data.decode()
        found: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except StrictJsonError:
        raise
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise StrictJsonError(f"line {error.lineno} is not JSON: {error.msg}") from None
    except ValueError:
        raise StrictJsonError("has a number with too many digits") from None
    except RecursionError:
        raise StrictJsonError(_TOO_DEEP) from None
    if text.count("{") + text.count("[") > _MOST_LEVELS and _is_deep(found):
        raise StrictJsonError(_TOO_DEEP)
    if _ESCAPED.search(text):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            message = "has text with half of a pair of surrogates, which UTF-8 cannot encode"
            raise StrictJsonError(message) from None
    return found


_TOO_DEEP: Final = f"is nested too deeply; at most {_MOST_LEVELS} levels are allowed"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise StrictJsonError(f"{shown(key)} is given twice in one object")
        found[key] = value
    return found


def _no_constant(text: str) -> NoReturn:
    raise StrictJsonError(f"{text} is not a number")


def _is_deep(found: object) -> bool:
    level = [found]
    for _ in range(_MOST_LEVELS):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [one for some in inner for one in some]
    return bool(level)
