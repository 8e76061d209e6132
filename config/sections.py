"""Describes the sections of a configuration file as tables of keys, and reads a file according to these tables.

Every unknown key, missing key and invalid value is reported with its line, and with advice on how to correct it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kafka_quota_proxy.config.document import Document, Location, fault_at
from kafka_quota_proxy.config.errors import Fault, TermsError
from kafka_quota_proxy.config.spelling import nearest

# Turns a value from YAML into a value of ``config.model``, or raises ValueError with the remedy.
Read = Callable[[object], Any]
_LONGEST_SHOWN: Final = 60


class TextWantedError(ValueError):
    """Raised if a value of another type, such as a number or a list, appears where text is expected.

    A common cause is that YAML reads an unquoted ``007`` as a number and an unquoted ``NO`` as false.
    """

    def __init__(self, expected: str, *, quotable: bool) -> None:
        super().__init__(expected)
        self.expected = expected
        self.quotable = quotable  # whether the value is valid once it is put in quotes


@dataclass(frozen=True, slots=True)
class ListOf:
    """Describes a list in the configuration file.

    Attributes:
        read: Describes an element of the list: a function that reads it, or a ``Section`` if each element is a mapping.
        collect: A function or class that turns the elements into the value for ``config.model``, such as ``tuple``.
        needs_one: Whether an empty list is an error.
    """

    read: "Read | Section"
    collect: Callable[[Iterable[Any]], Any] = tuple
    needs_one: bool = False


@dataclass(frozen=True, slots=True)
class MappingOf:
    """Describes a mapping whose keys the operator chooses, such as names of topics.

    Attributes:
        read_key: A function that reads one key.
        read: A function that reads one value.
        noun: What error messages call the keys, such as "topics".
        example: A valid mapping, for error messages.
    """

    read_key: Read
    read: Read
    noun: str
    example: str


@dataclass(frozen=True, slots=True)
class Key:
    """Describes one key of a section.

    Attributes:
        read: A function that reads the value, or the description of a section, list or mapping.
        field: The name of the field in ``config.model``. By default it is the key, with ``_`` in place of ``.`` and
            ``-``.
        missing: The advice for an operator who leaves the key out. None if the key is optional.
        is_path: Whether the value is a path. A relative path starts from the directory of the configuration file.
        takes_null: Whether null means the same as leaving the key out.
        or_null: Whether null means something, such as "no limit". The word ``null`` has to be written, since a key
            without a value is more likely a mistake.
        expand: A function for keys that also have a short form, such as ``false``. It turns the short form into the
            mapping for which it stands, or into None, which then becomes the value of the field.
    """

    read: "Read | Section | ListOf | MappingOf"
    field: str = ""
    missing: str | None = None
    is_path: bool = False
    takes_null: bool = False
    or_null: bool = False
    expand: Read | None = None


class Section:
    """Describes a section of the configuration file, which is a mapping with known keys.

    Args:
        build: A function that receives the values of the section as keyword arguments, and returns an object of
            ``config.model``. It raises ValueError if the values do not fit together.
        keys: The keys that the section may have, in the order in which the documentation lists them.
        removed: Keys that the section had once, each with what an operator who still has it is told to write instead.
        has_source: Whether ``build`` receives one more argument, ``source``, which says where the section begins, as
            ``FILE:LINE``.
    """

    def __init__(
        self,
        build: Callable[..., Any],
        keys: Mapping[str, Key],
        *,
        removed: Mapping[str, str] | None = None,
        has_source: bool = False,
    ) -> None:
        self.build = build
        self.keys = {name: replace(key, field=key.field or re.sub("[.-]", "_", name)) for name, key in keys.items()}
        self.removed = removed or {}
        self.required = [name for name, key in keys.items() if key.missing is not None]
        self.has_source = has_source

    def within(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], "Section"]]:
        """Yield this section and every section nested in it, each with the path of keys that leads to it."""
        yield path, self
        for name, key in self.keys.items():
            inner = key.read.read if isinstance(key.read, ListOf) else key.read
            if isinstance(inner, Section):
                yield from inner.within((*path, name))


class Part(dict[str, Any]):
    """What the file says in one section: the value of each key that is given, under the key's name in the file.

    A value is as its reader returns it, a list of such values, or the ``Part`` of a section in this one. It is None
    where the file has null or an invalid value, which is reported. So a check of several keys leaves out what is None.

    Attributes:
        at: The path to the section.
        made: The object that the section builds, or None if the section has errors.
    """

    __slots__ = ("at", "made")

    def __init__(self, at: Location) -> None:
        super().__init__()
        self.at = at
        self.made: Any = None

    def find(self, *keys: str) -> Any:  # noqa: ANN401 - a value of any key
        """Return what the file says at a path of keys from this section, or None if that is nothing, or invalid."""
        found: Any = self
        for key in keys:
            found = None if found is None else found.get(key)
        return found

    def parts(self, *keys: str) -> "list[Part]":
        """Return the sections in the list to which ``keys`` lead. There are none if it is not in the file."""
        return [each for each in self.find(*keys) or () if each is not None]


class SectionReader:
    """Reads a configuration file according to a ``Section``, which describes the keys at the top level of the file.

    ``faults`` contains the errors that the reader has found.
    """

    def __init__(self, document: Document, root: Section) -> None:
        self.faults: list[Fault] = []
        self._document = document
        self._root = root
        self._directory = Path(document.file).parent

    def read(self) -> Part:
        """Return what the file says, or nothing if the file is not a mapping."""
        top = self._section(self._root, self._document.data, ())
        return Part(()) if top is None else top

    def _section(self, section: Section, given: object, location: Location) -> Part | None:
        if not isinstance(given, dict):
            kind, keys = self._document.kind(location), ", ".join(section.keys)
            self._fault(location, f"must be a mapping, not {kind}; its keys are {keys}")
            return None
        known_faults = len(self.faults)
        part = Part(location)
        for name, value in given.items():
            key = section.keys.get(name)
            if key is None:
                self._fault((*location, name), self._unknown_key(name, section))
            elif value is not None or not key.takes_null:
                part[name] = self._value(key, value, (*location, name))
        for name in section.required:
            if name not in given:
                self._fault((*location, name), f"is missing; {section.keys[name].missing}")
        if len(self.faults) == known_faults:
            fields = {section.keys[name].field: _made(section.keys[name].read, value) for name, value in part.items()}
            if section.has_source:
                fields["source"] = f"{self._document.file}:{self._document.line(location)}"
            part.made = self._called(lambda _: section.build(**fields), None, location)
        return part

    def _value(self, key: Key, value: object, location: Location) -> object:
        if value is None and key.or_null:
            has_word = self._document.text(location)
            return None if has_word else self._fault(location, "has no value; write one, or the word null for none")
        if key.expand is not None:
            value = self._called(key.expand, value, location)
            if value is None:
                return None
        match key.read:
            case Section():
                return self._section(key.read, value, location)
            case ListOf():
                return self._list(key.read, value, location)
            case MappingOf():
                return self._mapping(key.read, value, location)
        found = self._called(key.read, value, location)
        return str(self._directory / str(found)) if key.is_path and found is not None else found

    def _list(self, form: ListOf, value: object, location: Location) -> object:
        if not isinstance(value, list):
            kind = self._document.kind(location)
            message = f"must be a list, not {kind}; begin each element with '- ', or write [] for none"
            return self._fault(location, message)
        if form.needs_one and not value:
            return self._fault(location, "is empty; give at least one element")
        element = Key(form.read)
        return [self._value(element, each, (*location, index)) for index, each in enumerate(value)]

    def _mapping(self, form: MappingOf, value: object, location: Location) -> object:
        if not isinstance(value, dict):
            kind = self._document.kind(location)
            return self._fault(location, f"must be a mapping of {form.noun}, not {kind}, such as {form.example}")
        return {
            self._called(form.read_key, name, (*location, name)): self._called(form.read, each, (*location, name))
            for name, each in value.items()
        }

    def _called(self, read: Read, value: object, location: Location) -> Any:  # noqa: ANN401 - a value of any key
        try:
            return read(value)
        except TermsError as error:
            return self._fault((*location, *error.path), error.message)
        except TextWantedError as error:
            return self._fault(location, self._text_wanted(error, location))
        except ValueError as error:
            return self._fault(location, str(error))

    def _text_wanted(self, error: TextWantedError, location: Location) -> str:
        text, kind = self._document.text(location), self._document.kind(location)
        if kind == "nothing":
            return f"has no value; write {error.expected}"
        if not text:
            return f"must be {error.expected}, not {kind}"
        if len(text) > _LONGEST_SHOWN:
            text = f"{text[:_LONGEST_SHOWN]}…"
        if not error.quotable:
            return f"must be {error.expected}; YAML reads {text} as {kind}"
        return f'must be {error.expected}; YAML reads {text} as {kind}, so quote it: "{text}"'

    def _unknown_key(self, key: str, section: Section) -> str:
        if key in section.removed:
            return section.removed[key]
        # The usual mistakes are underscores and capitals: client_id, maxThrottleTime.
        plain = {_plain(name): name for name in section.keys}
        near = nearest(_plain(key), plain)
        if near is not None:
            return f"unknown key; did you mean {plain[near]}?"
        for path, other in self._root.within():
            if key in other.keys:
                place = f"under {'.'.join(path)}" if path else "to the top of the file"
                return f"unknown key; it belongs {place}"
        return f"unknown key; known here: {', '.join(section.keys)}"

    def _fault(self, location: Location, message: str) -> Any:  # noqa: ANN401 - None, in place of the value
        self.faults.append(fault_at(self._document, location, message))


def _made(form: Read | Section | ListOf | MappingOf, value: Any) -> Any:  # noqa: ANN401 - for any key
    """Return the value for ``config.model`` from a valid value of a key."""
    if isinstance(form, ListOf):
        return form.collect(_made(form.read, each) for each in value)
    return value.made if isinstance(value, Part) else value


def _plain(key: str) -> str:
    return "".join(filter(str.isalnum, key.lower()))
