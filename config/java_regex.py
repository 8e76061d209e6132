r"""Regular expressions written for Java, as Python's.

Kafka's mapping rules are ``java.util.regex.Pattern``. Most of that language means the same to ``re``; some of it is
spelled differently; some has no counterpart. So each pattern is read by Java's grammar and written anew, and whatever
``re`` would take for something else is refused, in words that say what to write: a rule that quietly gives another
user than Kafka gives is worse than none.

Java without flags is ASCII (``\w``, ``\d``, ``(?i)``), ``.`` stops at six line terminators, not at one, and ``$`` also
stands before the last of them.

Source: ``java.util.regex.Pattern`` of Java 17; ``tests/end_to_end/test_principal_mapping.py`` compares the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, NoReturn

_MAX_DEPTH: Final = 50  # groups within groups; bounds the recursion here and in re
_MAX_REPEAT: Final = 10_000  # far above any name; re's own bound is its word size

# A line ends before one of these; \r\n is one.
_LINE_TERMINATORS: Final = r"\n\r\x85\u2028\u2029"
_ANY: Final = f"[^{_LINE_TERMINATORS}]"
_END: Final = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"

# Members of a class, without its brackets.
_SETS: Final = {
    "d": "0-9",
    "w": "a-zA-Z0-9_",
    "s": r"\t-\r\x20",
    "h": r"\t\x20\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n-\r\x85\u2028\u2029",
}
_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": r"\x20-~",
    "Blank": r"\t\x20",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r"\t-\r\x20",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ANCHORS: Final = {"A": r"\A", "z": r"\Z", "Z": _END}
_REFUSED_ESCAPES: Final = {
    "b": "means other characters since Java 19 than before; write the characters that may stand there",
    "B": "means other characters since Java 19 than before; write the characters that may stand there",
    "G": "stands where the last match ended, which is of no use in a rule; leave it out",
    "R": r"cannot be taken back in Python as in Java; write (?:\r\n|[\n\r])",
    "X": "has no counterpart in Python; write the characters that may stand there",
    "N": r"has no counterpart in Python; write the character itself or \x{…}",
}
_REPEAT: Final = re.compile(r"\{([0-9]{1,9})(?:(,)([0-9]{1,9})?)?\}")
_GROUP_NAME: Final = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>")
_INLINE_FLAGS: Final = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_PLAIN_GROUPS: Final = ("?:", "?=", "?!", "?<=", "?<!", "?>")
_LOOK_BEHINDS: Final = ("?<=", "?<!")


class JavaRegexError(ValueError):
    """Not a regular expression of Java's, or one that Python has no equal for. ``str`` says what to write."""


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore_case: bool = False
    dot_all: bool = False


@dataclass(frozen=True, slots=True)
class _Atom:
    text: str
    can_repeat: bool = True  # characters, not a place between them
    can_be_empty: bool = False
    captures: bool = False


def compile_java(pattern: str) -> re.Pattern[str]:
    """Return what matches in Python as ``pattern`` does in Java; groups keep their numbers and names.

    Raises:
        JavaRegexError: Java would refuse it, or Python cannot do the same.
    """
    translated = _Translator(pattern).translate()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError) as error:
        # What re alone knows: a look-behind of varying length.
        reason = str(error).partition(" at position")[0]
        raise JavaRegexError(f"cannot be done by Python as by Java: {reason}") from error


class _Translator:
    """One pass over a pattern. Each method begins at ``_at`` and leaves it behind what it has read."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._groups = 0
        self._closed: set[int] = set()
        self._names: dict[str, int] = {}
        self._look_behinds = 0

    def translate(self) -> str:
        text = self._alternatives(_Flags(), depth=0).text
        if self._at < len(self._pattern):
            self._refuse(r"a ) closes no group; write \) for the character")
        return text

    def _alternatives(self, flags: _Flags, depth: int) -> _Atom:
        """Read to the ``)`` that ends this group, or to the end."""
        if depth > _MAX_DEPTH:
            self._refuse(f"more than {_MAX_DEPTH} groups within groups")
        flags, prefix = self._leading_flags(flags)
        groups_before = self._groups
        text, is_empty, can_be_empty = "", True, False
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._take("|"):
                text += "|"
                can_be_empty |= is_empty
                is_empty = True
            else:
                atom = self._atom(flags, depth)
                quantifier = self._quantifier(atom)
                text += atom.text + quantifier
                is_empty &= atom.can_be_empty or quantifier.startswith(("?", "*", "{0"))
        text = f"{prefix}{text})" if prefix else text
        return _Atom(text, can_be_empty=can_be_empty or is_empty, captures=self._groups > groups_before)

    def _leading_flags(self, flags: _Flags) -> tuple[_Flags, str]:
        """``(?i)`` at the start of a group holds to its end, so it is the flag of a group around the rest."""
        before = flags
        while self._pattern.startswith("(?", self._at):
            found = _INLINE_FLAGS.match(self._pattern, self._at + 1)
            if found is None or found[3] != ")":
                break
            flags = self._changed(flags, found)
            self._at = found.end()
        return flags, "" if flags.ignore_case == before.ignore_case else _open(flags)

    def _changed(self, flags: _Flags, found: re.Match[str]) -> _Flags:
        on, off = found[1], found[2] or ""
        for flag in on + off:
            if flag not in "is":
                self._refuse(f"the flag {flag} has no counterpart in Python; only i and s can be used")
        return _Flags(
            ignore_case=("i" in on or flags.ignore_case) and "i" not in off,
            dot_all=("s" in on or flags.dot_all) and "s" not in off,
        )

    def _atom(self, flags: _Flags, depth: int) -> _Atom:
        character = self._next()
        match character:
            case "(":
                return self._group(flags, depth)
            case "[":
                return _Atom(self._class())
            case "\\":
                return self._escape(flags)
            case ".":
                return _Atom("(?s:.)" if flags.dot_all else _ANY)
            case "^":
                return _Atom(r"\A", can_repeat=False, can_be_empty=True)
            case "$":
                return _Atom(_END, can_repeat=False, can_be_empty=True)
            case "*" | "+" | "?" | "{":
                return self._refuse(f"{character} repeats nothing; write \\{character} for the character")
        return _Atom(_literal(character))

    def _quantifier(self, atom: _Atom) -> str:
        counted = _REPEAT.match(self._pattern, self._at)
        if counted:
            self._at = counted.end()
            text = self._counted(counted)
        elif self._peek() in ("*", "+", "?"):
            text = self._next()
        else:
            return ""
        if not atom.can_repeat:
            self._refuse(f"{text} repeats a place, not characters; leave it out")
        if atom.can_be_empty and text != "?":
            # Java and Python end such a repetition at different places.
            self._refuse(f"{text} repeats a group that can be empty; let each repetition take one character at least")
        if self._peek() == "+" and atom.captures:
            # Python forgets, or does not, what the last repetition has captured.
            self._refuse(f"{text}+ repeats a group that captures; write (?:…) or leave the + out")
        if self._peek() in ("?", "+"):
            text += self._next()
        if self._peek() in ("*", "+", "?", "{"):
            self._refuse(f"{self._peek()} repeats a repetition; put the first one into a group")
        return text

    def _counted(self, found: re.Match[str]) -> str:
        least, most = int(found[1]), int(found[3] or found[1])
        if max(least, most) > _MAX_REPEAT:
            self._refuse(f"{found[0]} is too many; at most {_MAX_REPEAT} can be asked for")
        if most < least:
            self._refuse(f"{found[0]} asks for at most {most} and at least {least}")
        return f"{{{least}{found[2] or ''}{'' if found[3] is None else most}}}"

    def _group(self, flags: _Flags, depth: int) -> _Atom:
        if self._peek() != "?":
            return self._capturing("(", flags, depth)
        named = _GROUP_NAME.match(self._pattern, self._at)
        if named:
            if named[1] in self._names:
                self._refuse(f"two groups are named {named[1]}; give each its own name")
            self._at = named.end()
            self._names[named[1]] = self._groups + 1
            return self._capturing(f"(?P<{named[1]}>", flags, depth)
        for opening in sorted(_PLAIN_GROUPS, key=len, reverse=True):
            if self._take(opening):
                is_place = opening not in ("?:", "?>")
                self._look_behinds += opening in _LOOK_BEHINDS
                inner = self._alternatives(flags, depth + 1)
                self._look_behinds -= opening in _LOOK_BEHINDS
                self._close()
                if inner.captures and opening != "?:":
                    # Java keeps what was captured on a way that led nowhere; Python does not.
                    self._refuse(f"a group that captures within ({opening}…) is not done alike; write (?:…)")
                return replace(
                    inner,
                    text=f"({opening}{inner.text})",
                    can_repeat=not is_place,
                    can_be_empty=is_place or inner.can_be_empty,
                )
        found = _INLINE_FLAGS.match(self._pattern, self._at)
        if found is None:
            self._refuse(f"({self._pattern[self._at : self._at + 3]} begins no group that Java knows")
        if found[3] == ")":
            self._refuse(f"({found[0]} stands in the middle; write it at the start, or as a group: ({found[0][:-1]}:…)")
        self._at = found.end()
        changed = self._changed(flags, found)
        inner = self._alternatives(changed, depth + 1)
        self._close()
        return replace(inner, text=f"{_open(changed)}{inner.text})")

    def _capturing(self, opening: str, flags: _Flags, depth: int) -> _Atom:
        self._groups += 1
        number = self._groups
        inner = self._alternatives(flags, depth + 1)
        self._close()
        self._closed.add(number)
        return replace(inner, text=f"{opening}{inner.text})", captures=True)

    def _close(self) -> None:
        if not self._take(")"):
            self._refuse(r"a ( is not closed; write \( for the character")

    def _escape(self, flags: _Flags) -> _Atom:
        character = self._next("a backslash at the end escapes nothing")
        if character in _ANCHORS:
            return _Atom(_ANCHORS[character], can_repeat=False, can_be_empty=True)
        if character == "Q":
            return self._quoted()
        if character == "k":
            return self._named_reference()
        if character in "123456789":
            return self._numbered_reference(character)
        members = self._set(character, flags)
        if members is not None:
            return _Atom(f"[{members}]")
        return _Atom(_literal(self._escaped_character(character)))

    def _quoted(self) -> _Atom:
        r"""``\Q`` to ``\E``, or to the end: each character is itself. A repetition behind it holds for the last."""
        end = self._pattern.find(r"\E", self._at)
        text = self._pattern[self._at : end if end >= 0 else len(self._pattern)]
        self._at += len(text) + (2 if end >= 0 else 0)
        return _Atom("".join(map(_literal, text)), can_repeat=bool(text), can_be_empty=not text)

    def _named_reference(self) -> _Atom:
        found = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>").match(self._pattern, self._at)
        if found is None:
            self._refuse(r"\k is followed by <NAME>")
        self._at = found.end()
        return self._reference(self._names.get(found[1], 0), f"\\k<{found[1]}>")

    def _numbered_reference(self, digits: str) -> _Atom:
        # More digits belong to it while there are so many groups.
        while self._peek() in tuple("0123456789") and int(digits + self._peek()) <= self._groups:
            digits += self._next()
        return self._reference(int(digits), f"\\{digits}")

    def _reference(self, number: int, written: str) -> _Atom:
        if self._look_behinds:
            self._refuse(f"{written} within a look-behind has no length that Java knows")
        if number not in self._closed:
            self._refuse(f"{written} refers to no group that has ended before it")
        return _Atom(f"(?:\\{number})", can_be_empty=True)

    def _set(self, character: str, flags: _Flags | None) -> str | None:
        r"""Return the members of a class such as ``\d``; None if the character names none."""
        if character in _SETS:
            return _SETS[character]
        if character.lower() in _SETS and character.isupper():
            return _complement(_SETS[character.lower()])
        if character not in ("p", "P"):
            return None
        found = re.compile(r"\{(?:\^)?(\w+)\}", re.ASCII).match(self._pattern, self._at)
        name = found[1] if found else ""
        if found is None or name not in _POSIX or "^" in found[0]:
            self._refuse(f"\\{character}{found[0] if found else ''} has no counterpart in Python; list the characters")
        if name in ("Lower", "Upper") and (flags is None or flags.ignore_case):
            self._refuse(f"\\{character}{{{name}}} means other characters in later Javas under (?i); write [a-zA-Z]")
        self._at = found.end()
        return _complement(_POSIX[name]) if character == "P" else _POSIX[name]

    def _escaped_character(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        match character:
            case "0":
                return self._numbered(r"[0-3][0-7]{1,2}|[0-7]{1,2}", 8, r"\0 is followed by an octal number")
            case "x":
                return self._numbered(r"[0-9a-fA-F]{2}|\{[0-9a-fA-F]{1,8}\}", 16, r"\x is followed by hh or {h…h}")
            case "u":
                return self._numbered("[0-9a-fA-F]{4}", 16, r"\u is followed by hhhh")
            case "c":
                return chr(ord(self._next(r"\c is followed by a character")) ^ 64)
        if character in _REFUSED_ESCAPES:
            self._refuse(f"\\{character} {_REFUSED_ESCAPES[character]}")
        if character.isascii() and character.isalnum():
            self._refuse(f"\\{character} is unknown to Java")
        return character

    def _numbered(self, form: str, base: int, complaint: str) -> str:
        found = re.compile(form).match(self._pattern, self._at)
        if found is None:
            self._refuse(complaint)
        self._at = found.end()
        number = int(found[0].strip("{}"), base)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            self._refuse(f"{found[0]} is no character by itself; write the character")
        return chr(number)

    def _class(self) -> str:
        negation = "^" if self._take("^") else ""
        members = ""
        is_first = True
        while is_first or self._peek() != "]":
            members += self._member()
            is_first = False
        self._at += 1
        return f"[{negation}{members}]"

    def _member(self) -> str:
        """Read one character, range or set within brackets. ``flags`` are not known here, so all may be set."""
        start, members = self._class_character()
        if members is not None:
            return members
        if self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return _literal(start)
        self._at += 1
        end, members = self._class_character()
        if members is not None:
            self._refuse(r"a range ends with a set; write \- for the character -")
        if end < start:
            self._refuse(f"the range {start}-{end} runs backwards")
        return f"{_literal(start)}-{_literal(end)}"

    def _class_character(self) -> tuple[str, str | None]:
        r"""Return a character, or what a set such as ``\d`` holds."""
        character = self._next(r"a [ is not closed; write \[ for the character")
        if character == "[":
            self._refuse(r"classes within classes have no counterpart in Python; write \[ for the character")
        if character == "&" and self._peek() == "&":
            self._refuse(r"&& within brackets has no counterpart in Python; write \& for the character")
        if character != "\\":
            return character, None
        character = self._next("a backslash at the end escapes nothing")
        if character in "QE":
            self._refuse(rf"\{character} within brackets is not supported; put a backslash before each character")
        members = self._set(character, None)
        return ("", members) if members is not None else (self._escaped_character(character), None)

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self, complaint: str = "") -> str:
        if self._at >= len(self._pattern):
            self._refuse(complaint)
        self._at += 1
        return self._pattern[self._at - 1]

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _refuse(self, message: str) -> NoReturn:
        raise JavaRegexError(message)


def _open(flags: _Flags) -> str:
    return "(?i:" if flags.ignore_case else "(?-i:"


def _literal(character: str) -> str:
    # Fit to stand within brackets and without, behind whatever digits.
    if not character.isascii() or character.isalnum():
        return character
    return f"\\x{ord(character):02x}"


def _complement(members: str) -> str:
    """Return the members of the complement, for brackets that may hold more."""
    ranges = sorted(_ranges(members))
    text, start = "", 0
    for first, last in ranges:
        if first > start:
            text += f"{_code(start)}-{_code(first - 1)}"
        start = max(start, last + 1)
    return f"{text}{_code(start)}-{_code(0x10FFFF)}"


def _ranges(members: str) -> list[tuple[int, int]]:
    one = r"(\\x..|\\u....|\\.|.)"
    found = re.findall(rf"{one}(?:-{one})?", members)
    return [(_code_point(first), _code_point(last or first)) for first, last in found]


def _code_point(member: str) -> int:
    if len(member) == 1:
        return ord(member)
    return int(member[2:], 16) if member[1] in "xu" else ord(_CONTROLS.get(member[1], member[1]))


def _code(code_point: int) -> str:
    return f"\\U{code_point:08x}"
