"""Turns YAML text into plain Python values, and finds the line of each value.

PyYAML's own constructor keeps no line numbers and accepts duplicate keys. So this module lets PyYAML compose the tree
of nodes, and walks the tree itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from kafka_quota_proxy.config.errors import ConfigError, Fault, Severity
from kafka_quota_proxy.config.units import shown

try:
    from yaml import CSafeLoader as _Loader  # 6 times as fast as SafeLoader
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

# The path to a value, as names of keys and indexes of lists from the top of the file.
Location = tuple[str | int, ...]

_TAG: Final = "tag:yaml.org,2002:"
_STR: Final = f"{_TAG}str"
_PLAIN_TAGS: Final = frozenset(f"{_TAG}{name}" for name in ("int", "float", "bool", "null"))
_KINDS: Final = {
    _STR: "text",
    f"{_TAG}int": "a number",
    f"{_TAG}float": "a number",
    f"{_TAG}bool": "true or false",
    f"{_TAG}null": "nothing",
    f"{_TAG}timestamp": "a date",
    f"{_TAG}seq": "a list",
    f"{_TAG}map": "a mapping",
}
# YAML 1.1 also reads 010 as 8, 0x10 as 16 and 1:30 as 90. An operator hardly means these numbers.
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
# Python refuses to read a few more.
_MANY_DIGITS: Final = 4_000
_BRACKETED_ADDRESS: Final = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]:[0-9]+")


@dataclass(frozen=True, slots=True)
class Odd:
    """The text of a YAML scalar whose type is not used in configuration files, such as a date or a huge number."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The content of a YAML file, with the line of each value and the faults that were found in reading it."""

    file: str
    data: object  # a str, int, float, bool, None or Odd, or a list or dict (with str keys) of such values
    faults: tuple[Fault, ...]
    root: yaml.Node | None  # None if the file is empty

    def line(self, location: Location) -> int:
        """Return the line of a key or element, or of its nearest parent in the file."""
        return self._find(location)[0]

    def text(self, location: Location) -> str:
        """Return the scalar at a location as the file spells it, or "" if there is no scalar."""
        node = self._find(location)[1]
        return node.value if isinstance(node, yaml.ScalarNode) else ""

    def kind(self, location: Location) -> str:
        """Return the YAML type of the value at a location in words, such as "a number"."""
        node = self._find(location)[1]
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}int" and not _DECIMAL.fullmatch(node.value):
            return "a number in octal, hexadecimal or base 60"
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}int" and len(node.value) > _MANY_DIGITS:
            return f"a number of {sum(map(str.isdigit, node.value))} digits"
        return _KINDS.get(node.tag, "something else") if node is not None else "nothing"

    def release(self, read: Mapping[str, object]) -> None:
        """Free the elements of each list, one after the other: its nodes, its data, and what was read from them.

        Call this when no line is needed any more. Freed at once, the nodes of 100,000 rules would stop all other
        threads for 0.1 s, and so the event loop.
        """
        nodes = self.root.value if isinstance(self.root, yaml.MappingNode) else ()
        data = self.data if isinstance(self.data, dict) else {}
        for section in (*(node.value for _, node in nodes), *data.values(), *read.values()):
            while isinstance(section, list) and section:
                section.pop()

    def _find(self, location: Location) -> tuple[int, yaml.Node | None]:
        node = self.root
        if node is None:
            return 1, None
        line = node.start_mark.line + 1
        for step in location:
            if isinstance(node, yaml.MappingNode):
                # If a key is given twice, find the first occurrence, because its value is used.
                pair = next(((key, value) for key, value in node.value if key.value == step), None)
                if pair is None:
                    break
                line, node = pair[0].start_mark.line + 1, pair[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                line = node.start_mark.line + 1
            else:
                break
        return line, node


def parse(text: str, *, file: str) -> Document:
    """Read one YAML document. Raises ConfigError with the first fault if the syntax is wrong."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError([_syntax_fault(error, text=text, file=file)]) from error
    walk = _Walk(file)
    try:
        data = None if root is None else walk.value(root, ())
    except RecursionError as error:
        fault = Fault(file=file, line=1, key="(yaml)", message="nested too deeply; a configuration has five levels")
        raise ConfigError([fault]) from error
    return Document(file=file, data=data, faults=tuple(walk.faults), root=root)


def located(file: Path, location: Location, message: str, severity: Severity = Severity.ERROR) -> Fault:
    """Create a fault, which is an error or a warning, about a key of a configuration file.

    The file is read to find the line of the key. If the file cannot be read, the line is 1.
    """
    try:
        document = parse(file.read_text(encoding="utf-8"), file=str(file))
    except (ConfigError, OSError, UnicodeDecodeError):
        return Fault(file=str(file), line=1, key=key_path(location), message=message, severity=severity)
    return fault_at(document, location, message, severity)


class Finding(NamedTuple):
    """A fault that a check of several keys has found. ``fault_at`` adds the file and the line of its key."""

    at: Location
    message: str
    severity: Severity


def error(at: Location, message: str) -> Finding:
    """Return the finding that the proxy cannot use the value at a key, together with those of other keys."""
    return Finding(at, message, Severity.ERROR)


def warning(at: Location, message: str) -> Finding:
    """Return the finding that the value at a key is most likely a mistake, though it can be used."""
    return Finding(at, message, Severity.WARNING)


def fault_at(document: Document, location: Location, message: str, severity: Severity = Severity.ERROR) -> Fault:
    """Create a fault, which is an error or a warning, about a key of a YAML document, with the line of the key."""
    line = document.line(location)
    return Fault(file=document.file, line=line, key=key_path(location), message=message, severity=severity)


def key_path(location: Location) -> str:
    """Return a location as text, such as ``quotas[2].user`` for ``("quotas", 2, "user")``."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "(file)"


class _Walk:
    """Turns the nodes of a YAML tree into Python values, and collects ``faults``."""

    def __init__(self, file: str) -> None:
        self.faults: list[Fault] = []
        self._file = file
        self._scalars = yaml.constructor.SafeConstructor()
        self._open: set[int] = set()  # the nodes around the current one: an alias to one of them would never end

    def value(self, node: yaml.Node, location: Location) -> object:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, location)
        if id(node) in self._open:
            self._fault(node, location, "this alias refers to itself; write the values out")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, location)
            return [self.value(element, (*location, index)) for index, element in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        values: dict[str, object] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = key.value
            if not isinstance(key, yaml.ScalarNode):
                self._fault(key, location, "a key must be a plain name, not a list or a mapping")
            elif key.tag == f"{_TAG}merge":
                self._fault(key, (*location, "<<"), "merge keys are not supported; write the keys out")
            elif name in values:
                message = f"is given twice, first in line {lines[name]}; keep one of them"
                self._fault(key, (*location, name), message)
            else:
                # Most values are strings. Without a call for each of them, a file of 10,000 rules takes half the time.
                values[name] = value.value if value.tag == _STR else self.value(value, (*location, name))
                lines[name] = key.start_mark.line + 1
        return values

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> object:
        if node.tag == _STR:
            return node.value
        if node.tag == f"{_TAG}int" and (len(node.value) > _MANY_DIGITS or not _DECIMAL.fullmatch(node.value)):
            return Odd(node.value)
        if node.tag not in _PLAIN_TAGS:
            if not node.tag.startswith(_TAG):
                self._fault(node, location, f"the tag {node.tag} is not supported; write the value without it")
            return Odd(node.value)
        try:
            return self._scalars.construct_object(node)
        except (ValueError, KeyError):  # "!!int abc", "!!bool 7"
            self._fault(node, location, f"{shown(node.value)} is not what its tag {node.tag} says; leave the tag out")
            return Odd(node.value)

    def _fault(self, node: yaml.Node, location: Location, message: str) -> None:
        line = node.start_mark.line + 1
        self.faults.append(Fault(file=self._file, line=line, key=key_path(location), message=message))


def _syntax_fault(error: yaml.YAMLError, *, text: str, file: str) -> Fault:
    line, message = 1, " ".join(str(error).split())
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        context = f"{error.context}: " if error.context else ""
        message = f"{context}{error.problem}"
    elif isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        message = f"a character that YAML does not allow: {error.character!r}"
    lines = text.split("\n")
    # The parser reports a fault at the end of the file one line after the last line.
    line = min(line, max(1, len(lines) - text.endswith("\n")))
    faulty = lines[line - 1]
    if "\t" in faulty[: len(faulty) - len(faulty.lstrip())]:
        message += "; indent with spaces, not tabs"
    elif _BRACKETED_ADDRESS.search(faulty):
        message += '; quote an address in brackets: "[::1]:9092"'
    elif "escape character" in message:
        message += "; use single quotes, in which a backslash is itself"
    return Fault(file=file, line=line, key="(yaml)", message=message)
