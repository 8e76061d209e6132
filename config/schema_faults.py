"""Translation of pydantic's errors to faults: file, line, key, fault and remedy."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from pydantic_core import ErrorDetails

from kafka_quota_proxy.config.document import Document, key_path
from kafka_quota_proxy.config.errors import Fault, TermsError
from kafka_quota_proxy.config.fair_call_queue_schema import FairCallQueueSection
from kafka_quota_proxy.config.schema import SECTIONS, known_keys
from kafka_quota_proxy.config.schema_fields import TextWantedError

_HADOOPS_PREFIX: Final = re.compile(r"ipc\.(?:[0-9]+\.)?")
_MISSING: Final[Mapping[str, str]] = {
    "listeners": "is missing; give at least one, with name, bind, and upstream or bootstrap_servers",
    "name": "is missing; give the listener a name, it appears in logs and metrics",
    "bind": "is missing; write the address to listen on, such as 0.0.0.0:9092",
    "certificate": "is missing; write the path of a PEM file that begins with the listener's own certificate",
    "key": "is missing; write the path of a PEM file with the certificate's private key",
    "match": "is missing; write the regular expression that names must match",
    "to": "is missing; write the name that matching users share",
    "directory": "is missing; write the path of a directory of its own, such as quotas.d",
    "rate": "is missing; write bytes per second, such as 10MiB",
}


def faults_of(errors: Iterable[ErrorDetails], document: Document) -> list[Fault]:
    """Return one fault for each of pydantic's errors."""
    return [_fault(error, document) for error in errors]


def _fault(error: ErrorDetails, document: Document) -> Fault:
    location = error["loc"]
    if location[-1:] == ("[key]",):  # how pydantic marks a key that the operator chooses, such as a topic
        location = location[:-1]
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, TermsError):
        # The path of the error replaces pydantic's, which may end at the rule.
        location = (*location[:2], *cause.path)
        return Fault(file=document.file, line=document.line(location), key=key_path(location), message=cause.message)
    message = _message(error, document)
    return Fault(file=document.file, line=document.line(location), key=key_path(location), message=message)


def _message(error: ErrorDetails, document: Document) -> str:
    location = error["loc"]
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(location)
        case "missing":
            return _MISSING[str(location[-1])]
        case "value_error":
            cause = error["ctx"]["error"]
            return _text_wanted(cause, location, document) if isinstance(cause, TextWantedError) else str(cause)
        case "too_short":
            return "is empty; give at least one element"
        case "list_type":
            return f"must be a list, not {document.kind(location)}; begin each element with '- ', or write [] for none"
        case "dict_type":
            return f'must be a mapping of topics, not {document.kind(location)}, such as {{orders: "0:101,1:102"}}'
        case "bool_type":
            return f"must be true or false (without quotes), not {document.text(location) or document.kind(location)!r}"
        case "model_type":
            section = SECTIONS[tuple(step for step in location if isinstance(step, str))]
            return f"must be a mapping, not {document.kind(location)}; its keys are {', '.join(known_keys(section))}"
        case _:  # an error of pydantic without a text here
            return error["msg"]


def _unknown_key(location: tuple[str | int, ...]) -> str:
    key = str(location[-1])
    where = tuple(step for step in location[:-1] if isinstance(step, str))
    known = known_keys(SECTIONS[where])
    own = _HADOOPS_PREFIX.sub("", key)
    if own != key and own in known_keys(FairCallQueueSection):
        return f"has Hadoop's prefix, which says of which port it is; write {own} under fair_call_queue"
    # The usual mistakes are underscores and capitals: client_id, maxThrottleTime.
    plain = {_plain(name): name for name in known}
    near = difflib.get_close_matches(_plain(key), plain, n=1, cutoff=0.7)
    if near:
        return f"unknown key; did you mean {plain[near[0]]}?"
    for path, section in SECTIONS.items():
        if key in known_keys(section):
            place = f"under {'.'.join(path)}" if path else "to the top of the file"
            return f"unknown key here; it belongs {place}"
    return f"unknown key; known here: {', '.join(known)}"


def _plain(key: str) -> str:
    return "".join(character for character in key.lower() if character.isalnum())


def _text_wanted(cause: TextWantedError, location: tuple[str | int, ...], document: Document) -> str:
    text, kind = document.text(location), document.kind(location)
    if kind == "nothing":
        return f"has no value; write {cause.expected}"
    if not text:
        return f"must be {cause.expected}, not {kind}"
    if not cause.quotable:
        return f"must be {cause.expected}; YAML reads {text} as {kind}"
    return f'must be {cause.expected}; YAML reads {text} as {kind}, so quote it: "{text}"'
